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
constexpr std::array kChimeraGemm = {
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
constexpr std::array kChimeraConv = {
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
    FuserRow{"G1", 1, 512, 256, 64, 64},
    FuserRow{"G2", 1, 512, 256, 64, 128},
    FuserRow{"G3", 1, 512, 256, 64, 256},
    FuserRow{"G4", 1, 512, 512, 256, 256},
    FuserRow{"G5", 1, 512, 512, 512, 256},
    FuserRow{"G6", 1, 512, 512, 1024, 256},
    FuserRow{"G7", 1, 512, 512, 128, 128},
    FuserRow{"G8", 1, 1024, 512, 128, 128},
    FuserRow{"G9", 1, 2048, 512, 128, 128},
    FuserRow{"G10", 1, 1024, 1024, 128, 128},
    FuserRow{"G11", 4, 1024, 1024, 128, 128},
    FuserRow{"G12", 8, 1024, 1024, 128, 128},
};

// MCFuser, table III; the first column counts heads.
constexpr std::array kFuserAttention = {
    FuserRow{"S1", 8, 512, 512, 64, 64},
    FuserRow{"S2", 12, 512, 512, 64, 64},
    FuserRow{"S3", 16, 512, 512, 64, 64},
    FuserRow{"S4", 12, 256, 256, 64, 64},
    FuserRow{"S5", 16, 256, 256, 64, 64},
    FuserRow{"S6", 16, 256, 256, 80, 80},
    FuserRow{"S7", 1, 512, 256, 64, 64},
    FuserRow{"S8", 1, 768, 384, 64, 64},
    FuserRow{"S9", 1, 1024, 512, 64, 64},
};

// FlashFuser's tables of GEMM chains and gated FFNs: its N is our l, its L our n.
constexpr std::array kFlashGemm = {
    FuserRow{"G1", 1, 128, 512, 32, 256},     FuserRow{"G2", 1, 128, 256, 512, 64},
    FuserRow{"G3", 1, 128, 512, 416, 256},    FuserRow{"G4", 1, 128, 3072, 768, 768},
    FuserRow{"G5", 1, 128, 16384, 4096, 4096}, FuserRow{"G6", 1, 128, 4096, 1024, 1024},
    FuserRow{"G7", 1, 128, 768, 768, 768},    FuserRow{"G8", 1, 128, 8192, 2048, 2048},
    FuserRow{"G9", 1, 128, 2048, 512, 512},   FuserRow{"G10", 1, 128, 1536, 384, 384},
};
constexpr std::array kFlashGated = {
    FuserRow{"S1", 1, 128, 8192, 3072, 3072},  FuserRow{"S2", 1, 128, 5632, 2048, 2048},
    FuserRow{"S3", 1, 128, 11008, 4096, 4096}, FuserRow{"S4", 1, 128, 8192, 2048, 2048},
    FuserRow{"S5", 1, 128, 11008, 2048, 2048}, FuserRow{"S6", 1, 128, 8960, 1536, 1536},
    FuserRow{"S7", 1, 128, 9728, 2560, 2560},  FuserRow{"S8", 1, 128, 3072, 1024, 1024},
};
constexpr std::array kFlashConv = {
    ConvRow{"C1", 64, 56, 56, 256, 64, 1, 1, 1, 1},   ConvRow{"C2", 128, 28, 28, 512, 128, 1, 1, 1, 1},
    ConvRow{"C3", 256, 14, 14, 1024, 256, 1, 1, 1, 1}, ConvRow{"C4", 512, 7, 7, 2048, 512, 1, 1, 1, 1},
    ConvRow{"C5", 64, 56, 56, 64, 256, 1, 1, 3, 1},   ConvRow{"C6", 128, 28, 28, 128, 512, 1, 1, 3, 1},
    ConvRow{"C7", 256, 14, 14, 256, 1024, 1, 1, 3, 1}, ConvRow{"C8", 512, 7, 7, 512, 2048, 1, 1, 3, 1},
};

std::map<std::string, std::int64_t> sizes_of(const ConvRow& r) {
  return {{"ic", r.ic}, {"h", r.h}, {"w", r.w}, {"oc1", r.oc1}, {"oc2", r.oc2},
          {"st1", r.st1}, {"st2", r.st2}, {"k1", r.k1}, {"k2", r.k2}};
}

std::map<std::string, std::int64_t> sizes_of(const FuserRow& r) {
  return {{"batch", r.batch}, {"m", r.m}, {"n", r.h}, {"k", r.k}, {"l", r.n}};
}

}  // namespace

std::vector<Row> paper_rows() {
  std::vector<Row> out;
  for (const ChainRow& r : kChimeraGemm)
    out.push_back({std::string("chimera/") + r.name, "gemm-chain",
                   std::string("GEMM chain of ") + r.network, "Chimera, table IV", DType::f32,
                   {{"batch", r.batch}, {"m", r.m}, {"n", r.n}, {"k", r.k}, {"l", r.l}}});
  for (const ConvRow& r : kChimeraConv)
    out.push_back({std::string("chimera/") + r.name, "conv-chain", "convolution chain",
                   "Chimera, table V", DType::f32,
                   sizes_of(r)});
  for (const FuserRow& r : kFuserGemm)
    out.push_back({std::string("mcfuser/") + r.name, "gemm-chain", "GEMM chain",
                   "MCFuser, table II", DType::f16, sizes_of(r)});
  for (const FuserRow& r : kFuserAttention)
    out.push_back({std::string("mcfuser/") + r.name, "attention", "self-attention",
                   "MCFuser, table III", DType::f16,
                   {{"heads", r.batch}, {"m", r.m}, {"n", r.h}, {"k", r.k}, {"l", r.n}}});
  for (const FuserRow& r : kFlashGemm)
    out.push_back({std::string("flashfuser/") + r.name, "gemm-chain", "GEMM chain",
                   "FlashFuser, table of GEMM chains", DType::f16, sizes_of(r)});
  for (const FuserRow& r : kFlashGated)
    out.push_back({std::string("flashfuser/") + r.name, "gated-ffn", "gated feed-forward network",
                   "FlashFuser, table of gated FFNs", DType::f16, sizes_of(r)});
  for (const ConvRow& r : kFlashConv)
    out.push_back({std::string("flashfuser/") + r.name, "conv-chain", "convolution chain",
                   "FlashFuser, table of convolution chains", DType::f16, sizes_of(r)});
  return out;
}

}  // namespace tilewright::builtin
