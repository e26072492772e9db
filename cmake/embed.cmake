# A text file as a C++ string: cmake -DFROM=worker.py -DTO=worker.h -DNAME=kWorker -P embed.cmake
file(READ ${FROM} text)
file(WRITE ${TO} "inline constexpr char ${NAME}[] = R\"embedded(${text})embedded\";\n")
