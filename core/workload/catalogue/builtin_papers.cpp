// Rows of the papers' configuration tables.
#include <array>

#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {
namespace {

struct ChainRow {
  const char* name;
  std::int64_t batch, m, n, k, l;
  const char* network;
};

// Chimera, table IV.
constexpr std::array kTable4 = {
    ChainRow{"G1", 8, 512, 64, 64, 512, "Bert-Small"},
    ChainRow{"G2", 12, 512, 64, 64, 512, "Bert-Base"},
    ChainRow{"G3", 16, 512, 64, 64, 512, "Bert-Large"},
    ChainRow{"G4", 12, 256, 64, 64, 256, "ViT-Base/14"},
    ChainRow{"G5", 16, 256, 64, 64, 256, "ViT-Large/14"},
    ChainRow{"G6", 16, 256, 80, 80, 256, "ViT-Huge/14"},
    ChainRow{"G7", 12, 208, 64, 64, 208, "ViT-Base/16"},
    ChainRow{"G8", 16, 208, 64, 64, 208, "ViT-Large/16"},
    ChainRow{"G9", 16, 208, 80, 80, 208, "ViT-Huge/16"},
    ChainRow{"G10", 1, 512, 64, 64, 256, "MLP-Mixer"},
    ChainRow{"G11", 1, 768, 64, 64, 384, "MLP-Mixer"},
    ChainRow{"G12", 1, 1024, 64, 64, 512, "MLP-Mixer"},
};

struct ConvRow {
  const char* name;
  std::int64_t ic, h, w, oc1, oc2, st1, st2, k1, k2;
};

// Chimera, table V.
constexpr std::array kTable5 = {
    ConvRow{"C1", 64, 112, 112, 192, 128, 2, 1, 3, 1},
    ConvRow{"C2", 32, 147, 147, 64, 80, 2, 1, 3, 1},
    ConvRow{"C3", 64, 56, 56, 128, 64, 1, 1, 3, 1},
    ConvRow{"C4", 128, 28, 28, 256, 128, 1, 1, 3, 1},
    ConvRow{"C5", 16, 227, 227, 64, 16, 4, 1, 3, 1},
    ConvRow{"C6", 64, 56, 56, 64, 64, 1, 1, 1, 3},
    ConvRow{"C7", 64, 56, 56, 64, 64, 1, 1, 1, 1},
    ConvRow{"C8", 256, 56, 56, 256, 64, 1, 1, 1, 1},
};

// The papers' own columns: MCFuser's N is our l, its H our n.
struct FuserRow {
  const char* name;
  std::int64_t batch, m, n, k, h;
};

// MCFuser, table II.
constexpr std::array kFuserGemm = {
    FuserRow{"G1", 1, 512, 256, 64, 64},      FuserRow{"G2", 1, 512, 256, 64, 128},
    FuserRow{"G3", 1, 512, 256, 64, 256},     FuserRow{"G4", 1, 512, 512, 256, 256},
    FuserRow{"G5", 1, 512, 512, 512, 256},    FuserRow{"G6", 1, 512, 512, 1024, 256},
    FuserRow{"G7", 1, 512, 512, 128, 128},    FuserRow{"G8", 1, 1024, 512, 128, 128},
    FuserRow{"G9", 1, 2048, 512, 128, 128},   FuserRow{"G10", 1, 1024, 1024, 128, 128},
    FuserRow{"G11", 4, 1024, 1024, 128, 128}, FuserRow{"G12", 8, 1024, 1024, 128, 128},
};

// MCFuser, table III; the first column counts heads.
constexpr std::array kFuserAttention = {
    FuserRow{"S1", 8, 512, 512, 64, 64},  FuserRow{"S2", 12, 512, 512, 64, 64},
    FuserRow{"S3", 16, 512, 512, 64, 64}, FuserRow{"S4", 12, 256, 256, 64, 64},
    FuserRow{"S5", 16, 256, 256, 64, 64}, FuserRow{"S6", 16, 256, 256, 80, 80},
    FuserRow{"S7", 1, 512, 256, 64, 64},  FuserRow{"S8", 1, 768, 384, 64, 64},
    FuserRow{"S9", 1, 1024, 512, 64, 64},
};

// FlashFuser's own columns: its N is our l, its L our n.
struct FlashRow {
  const char* name;
  std::int64_t m, n, k, l;
};

// FlashFuser, the table of GEMM chains.
constexpr std::array kFlashGemm = {
    FlashRow{"G1", 128, 512, 32, 256},      FlashRow{"G2", 128, 256, 512, 64},
    FlashRow{"G3", 128, 512, 416, 256},     FlashRow{"G4", 128, 3072, 768, 768},
    FlashRow{"G5", 128, 16384, 4096, 4096}, FlashRow{"G6", 128, 4096, 1024, 1024},
    FlashRow{"G7", 128, 768, 768, 768},     FlashRow{"G8", 128, 8192, 2048, 2048},
    FlashRow{"G9", 128, 2048, 512, 512},    FlashRow{"G10", 128, 1536, 384, 384},
};

// FlashFuser, the table of gated feed-forward layers.
constexpr std::array kFlashGated = {
    FlashRow{"S1", 128, 8192, 3072, 3072},  FlashRow{"S2", 128, 5632, 2048, 2048},
    FlashRow{"S3", 128, 11008, 4096, 4096}, FlashRow{"S4", 128, 8192, 2048, 2048},
    FlashRow{"S5", 128, 11008, 2048, 2048}, FlashRow{"S6", 128, 8960, 1536, 1536},
    FlashRow{"S7", 128, 9728, 2560, 2560},  FlashRow{"S8", 128, 3072, 1024, 1024},
};

// FlashFuser, the table of convolution chains; all of stride 1.
constexpr std::array kFlashConv = {
    ConvRow{"C1", 64, 56, 56, 256, 64, 1, 1, 1, 1},
    ConvRow{"C2", 128, 28, 28, 512, 128, 1, 1, 1, 1},
    ConvRow{"C3", 256, 14, 14, 1024, 256, 1, 1, 1, 1},
    ConvRow{"C4", 512, 7, 7, 2048, 512, 1, 1, 1, 1},
    ConvRow{"C5", 64, 56, 56, 64, 256, 1, 1, 3, 1},
    ConvRow{"C6", 128, 28, 28, 128, 512, 1, 1, 3, 1},
    ConvRow{"C7", 256, 14, 14, 256, 1024, 1, 1, 3, 1},
    ConvRow{"C8", 512, 7, 7, 512, 2048, 1, 1, 3, 1},
};

Row conv_row(std::string name, const ConvRow& r, std::string source, DType dtype) {
  return {std::move(name),
          "conv-chain",
          "convolution chain",
          std::move(source),
          dtype,
          {{"ic", r.ic},
           {"h", r.h},
           {"w", r.w},
           {"oc1", r.oc1},
           {"oc2", r.oc2},
           {"st1", r.st1},
           {"st2", r.st2},
           {"k1", r.k1},
           {"k2", r.k2}}};
}

}  // namespace

std::vector<Row> paper_rows() {
  std::vector<Row> out;
  for (const ChainRow& r : kTable4)
    out.push_back({std::string("chimera/") + r.name,
                   "gemm-chain",
                   std::string("GEMM chain of ") + r.network,
                   "Chimera, table IV",
                   DType::f32,
                   {{"batch", r.batch}, {"m", r.m}, {"n", r.n}, {"k", r.k}, {"l", r.l}}});
  for (const ConvRow& r : kTable5)
    out.push_back(conv_row(std::string("chimera/") + r.name, r, "Chimera, table V", DType::f32));
  for (Row& r : out) r.half_on_accelerators = true;
  for (const FuserRow& r : kFuserGemm)
    out.push_back({std::string("mcfuser/") + r.name,
                   "gemm-chain",
                   "GEMM chain",
                   "MCFuser, table II",
                   DType::f16,
                   {{"batch", r.batch}, {"m", r.m}, {"n", r.h}, {"k", r.k}, {"l", r.n}}});
  for (const FuserRow& r : kFuserAttention)
    out.push_back({std::string("mcfuser/") + r.name,
                   "attention",
                   "self-attention",
                   "MCFuser, table III",
                   DType::f16,
                   {{"heads", r.batch}, {"m", r.m}, {"n", r.h}, {"k", r.k}, {"l", r.n}}});
  for (const FlashRow& r : kFlashGemm)
    out.push_back({std::string("flashfuser/") + r.name,
                   "gemm-chain",
                   "GEMM chain",
                   "FlashFuser, the table of GEMM chains",
                   DType::f16,
                   {{"m", r.m}, {"n", r.l}, {"k", r.k}, {"l", r.n}}});
  for (const FlashRow& r : kFlashGated)
    out.push_back({std::string("flashfuser/") + r.name,
                   "gated-ffn",
                   "gated feed-forward layer",
                   "FlashFuser, the table of gated feed-forward layers",
                   DType::f16,
                   {{"m", r.m}, {"n", r.l}, {"k", r.k}, {"l", r.n}}});
  for (const ConvRow& r : kFlashConv)
    out.push_back(conv_row(std::string("flashfuser/") + r.name, r,
                           "FlashFuser, the table of convolution chains", DType::f16));
  return out;
}

}  // namespace tilewright::builtin
