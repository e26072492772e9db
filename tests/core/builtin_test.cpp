#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/plan/file.h"
#include "core/workload/cut.h"
#include "tests/support/places.h"

namespace tilewright {
namespace {

std::string error_of(const std::string& name) {
  try {
    named_workload(name);
  } catch (const InputError& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "accepted";
}

std::vector<std::string> operator_texts(const Workload& w) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < w.operators().size(); ++i) out.push_back(to_text(w, OpId(i)));
  return out;
}

using Texts = std::vector<std::string>;

TEST(Builtin, EveryRecordHolds) {
  EXPECT_EQ(builtin_workloads().size(), 43u + 12 + 8 + 12 + 9 + 10 + 8 + 8 + 11);
  for (const BuiltinWorkload& b : builtin_workloads()) {
    SCOPED_TRACE(b.name);
    EXPECT_FALSE(b.summary.empty());
    const Workload w = named_workload(b.name);
    EXPECT_EQ(w.name(), b.name);
    EXPECT_EQ(named_workload(b.name + ":" + b.defaults), w);
    EXPECT_EQ(workload_from_yaml(to_yaml(w), b.name), w);
    EXPECT_EQ(workload_from_json(nlohmann::json::parse(to_json(w).dump()), b.name), w);
    EXPECT_FALSE(w.outputs().empty());
  }
}

TEST(Builtin, NetworksKeepTheirWeights) {
  const std::map<std::string, Texts> given = {
      {"bert:layers=2", {"X0"}},
      {"lstm:steps=2,layers=2", {"x", "h0", "c0"}},
      {"lstm:steps=2,layers=2,wavefront=1", {"h0", "c0", "x"}},
      {"mmoe", {"in"}},
      {"se-module/M3", {"X"}},
      {"vit-b16:layers=1", {"image"}},
      {"gpt2:layers=2", {"ids", "pastK1", "pastV1", "pastK2", "pastV2"}},
      {"swin-b:stages=2,blocks=2", {"image"}},
      {"resnext101:stages=2,blocks=2", {"image"}},
      {"efficientnet-b0:stages=2", {"image"}},
      {"shufflenet-v2:stages=1", {"image"}},
      {"sar-drn", {"image"}},
      {"rednet50:stages=1", {"image"}},
      {"gemm-chain", {"A", "B", "D"}}};
  for (const auto& [name, expected] : given) {
    const Workload w = named_workload(name);
    Texts each_run;
    for (std::size_t t = 0; t < w.tensors().size(); ++t)
      if (w.is_input(TensorId(t)) && !w.tensors()[t].values)
        each_run.push_back(w.tensors()[t].name);
    EXPECT_THAT(each_run, testing::UnorderedElementsAreArray(expected)) << name;
    EXPECT_THAT(constant_operators(w), testing::Not(testing::Contains(true))) << name;
  }
}

/// What else a network has where one of its sizes is another: sizes that divide.
const std::map<std::string, std::string> kDividing = {{"vit-b16 size", ":patch=2"},
                                                      {"vit-b16 patch", ":size=1008"},
                                                      {"vit-b16 hidden", ":heads=2"},
                                                      {"vit-b16 heads", ":hidden=1008"},
                                                      {"gpt2 hidden", ":heads=2"},
                                                      {"gpt2 heads", ":hidden=1008"},
                                                      {"swin-b size", ":stages=1,patch=1,window=2"},
                                                      {"swin-b patch", ":stages=1,size=1008"},
                                                      {"swin-b window", ":stages=1,size=1008"},
                                                      {"swin-b width", ":heads=2"},
                                                      {"swin-b heads", ":width=24"},
                                                      {"rednet50 size", ":stages=1"},
                                                      {"rednet50 channels", ":group=1"},
                                                      {"rednet50 group", ":channels=288"}};

TEST(Builtin, EveryParameterMatters) {
  for (const BuiltinWorkload& b : builtin_workloads()) {
    std::string_view rest = b.defaults;
    while (!rest.empty()) {
      const std::string item(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(rest.size(), item.size() + 1));
      const std::string key = item.substr(0, item.find('='));
      const std::string value = item.substr(item.find('=') + 1);
      // Attention's groups divide its heads; a causal mask needs as many columns as rows.
      const bool of_heads = key == "groups" && b.defaults.find("heads=") != b.defaults.npos;
      // Heads divide a network's hidden size: 1008 by 12, 14, 16 and 18.
      const bool network = b.name.starts_with("bert");
      const std::string also = of_heads                     ? ":heads=6"
                               : key == "causal"            ? ":l=4096"
                               : network && key == "hidden" ? ":heads=2"
                               : network && key == "heads"  ? ":hidden=1008"
                               : kDividing.contains(b.name + " " + key)
                                   ? kDividing.at(b.name + " " + key)
                                   : "";
      const std::string other =
          key == "dtype"                                     ? "i8"
          : value == "0"                                     ? "1"
          : key == "relu" || key == "gather"                 ? "0"
          : key == "stages" || key == "blocks"               ? "1"  // their default is the most
          : key == "channels"                                ? std::to_string(std::stoi(value) + 4)
          : key[0] == 'k' && b.name.find('C') != b.name.npos ? "5"
                                                             : std::to_string(std::stoi(value) + 2);
      EXPECT_NE(
          named_workload(b.name + (also.empty() ? ":" : also + ",") + key + "=" + other).spec(),
          named_workload(b.name + also).spec())
          << b.name << " " << key;
    }
  }
}

TEST(Builtin, GemmChain) {
  EXPECT_EQ(operator_texts(named_workload("gemm-chain")),
            (Texts{"gemm1: C[m,l] += A[m,k] * B[k,l]", "gemm2: E[m,n] += C[m,l] * D[l,n]"}));
  EXPECT_EQ(operator_texts(named_workload("gemm-chain:batch=8,relu=1")),
            (Texts{"gemm1: C[b,m,l] += A[b,m,k] * B[b,k,l]", "relu: C1[b,m,l] = relu(C[b,m,l])",
                   "gemm2: E[b,m,n] += C1[b,m,l] * D[b,l,n]"}));
  EXPECT_EQ(operator_texts(named_workload("gemm-chain3")).back(),
            "gemm3: G[m,p] += E[m,n] * F[n,p]");
  const Workload g7 = named_workload("chimera/G7:dtype=f16,batch=1");
  EXPECT_EQ(g7.dtype(), DType::f16);
  EXPECT_EQ(g7.find_loop("b"), std::nullopt);
  EXPECT_EQ(g7.loop(*g7.find_loop("m")).extent, 208);
}

TEST(Builtin, GatedFeedForwardLayer) {
  EXPECT_EQ(operator_texts(named_workload("gated-ffn:batch=2")),
            (Texts{"gate: G[b,m,l] += A[b,m,k] * B[b,k,l]", "up: U[b,m,l] += A[b,m,k] * V[b,k,l]",
                   "gated: H[b,m,l] = G[b,m,l] * sigmoid(G[b,m,l]) * U[b,m,l]",
                   "down: E[b,m,n] += H[b,m,l] * D[b,l,n]"}));
}

/// FlashFuser's n is the chain's l and its l the chain's n.
TEST(Builtin, FlashFusersRows) {
  const auto extents = [](const char* name, const Texts& loops) {
    const Workload w = named_workload(name);
    EXPECT_EQ(w.dtype(), DType::f16);
    std::vector<std::int64_t> out;
    for (const std::string& l : loops) out.push_back(w.loop(*w.find_loop(l)).extent);
    return out;
  };
  using Extents = std::vector<std::int64_t>;
  EXPECT_EQ(extents("flashfuser/G5", {"m", "l", "k", "n"}), (Extents{128, 16384, 4096, 4096}));
  EXPECT_EQ(extents("flashfuser/S3", {"m", "l", "k", "n"}), (Extents{128, 11008, 4096, 4096}));
  EXPECT_EQ(extents("flashfuser/C8", {"ic", "h", "w", "oc1", "oc2", "r1", "r2"}),
            (Extents{512, 7, 7, 512, 2048, 3, 1}));
}

TEST(Builtin, Attention) {
  EXPECT_EQ(operator_texts(named_workload("attention:m=4,l=6,k=2,n=2")),
            (Texts{"qk: S[m,l] += Q[m,k] * K[l,k]", "rowmax: R[m] max= S[m,l]",
                   "exp: P[m,l] = exp(S[m,l] - R[m])", "rowsum: Z[m] += P[m,l]",
                   "pv: O[m,n] += P[m,l] * V[l,n]", "divide: E[m,n] = O[m,n] / Z[m]"}));
  EXPECT_EQ(operator_texts(named_workload("attention:heads=2,k=64,scale=1"))[1],
            "scaled: T[b,m,l] = S[b,m,l] * 0.125");
}

TEST(Builtin, ACausalMaskEndsWithTheLastColumn) {
  const auto mask = [](const std::string& more) {
    const Texts all = operator_texts(named_workload("attention:m=4,k=4,n=2,causal=1," + more));
    return *std::ranges::find_if(all, [](const auto& t) { return t.starts_with("masked"); });
  };
  EXPECT_EQ(mask("l=4"), "masked: U[m,l] = select(lt(m, l), -inf, S[m,l])");
  EXPECT_EQ(mask("l=6,online=1"), "masked: U[m,l] = select(lt(m + 2, l), -inf, S[m,l])");
  EXPECT_EQ(mask("l=6,scale=1,heads=4,groups=2"),
            "masked: U[b,h,m,l] = select(lt(m + 2, l), -inf, T[b,h,m,l])");
  EXPECT_EQ(operator_texts(named_workload("attention:m=4,l=4,k=2,n=2,causal=1"))[2],
            "rowmax: R[m] max= U[m,l]");
  EXPECT_EQ(error_of("attention:m=5,l=4,causal=1"),
            "attention: l: 4 leaves rows without a column that a causal mask lets them read; "
            "accepted: m (5) or more");
}

TEST(Builtin, QueryHeadsOfAGroupShareKeysAndValues) {
  const Workload w = named_workload("attention:heads=6,groups=3,m=4,l=6,k=2,n=5");
  EXPECT_EQ(operator_texts(w),
            (Texts{"qk: S[b,h,m,l] += Q[b,h,m,k] * K[b,l,k]", "rowmax: R[b,h,m] max= S[b,h,m,l]",
                   "exp: P[b,h,m,l] = exp(S[b,h,m,l] - R[b,h,m])", "rowsum: Z[b,h,m] += P[b,h,m,l]",
                   "pv: O[b,h,m,n] += P[b,h,m,l] * V[b,l,n]",
                   "divide: E[b,h,m,n] = O[b,h,m,n] / Z[b,h,m]"}));
  EXPECT_EQ(w.tensor(*w.find_tensor("Q")).shape, (std::vector<std::int64_t>{2, 3, 4, 2}));
  EXPECT_EQ(w.tensor(*w.find_tensor("K")).shape, (std::vector<std::int64_t>{2, 6, 2}));
  EXPECT_TRUE(w.is_batch(*w.find_loop("b")));
  EXPECT_FALSE(w.is_batch(*w.find_loop("h")));
  // All queries share one head of keys and values.
  EXPECT_EQ(operator_texts(named_workload("attention:heads=3,groups=3,m=4,l=6,k=2,n=5"))[0],
            "qk: S[h,m,l] += Q[h,m,k] * K[l,k]");
  EXPECT_EQ(named_workload("attention:heads=6,groups=1").spec(),
            named_workload("attention:heads=6").spec());
  EXPECT_EQ(error_of("attention:heads=6,groups=4"),
            "attention: groups: 4 does not divide the heads; accepted: a divisor of 6");
}

TEST(Builtin, ConvChainSizes) {
  // The usual padded output: floor((n + 2p - k) / stride) + 1.
  const Workload c1 = named_workload("chimera/C1");
  EXPECT_EQ(c1.tensor(*c1.find_tensor("M")).shape, (std::vector<std::int64_t>{192, 56, 56}));
  EXPECT_EQ(c1.tensor(*c1.find_tensor("O")).shape, (std::vector<std::int64_t>{128, 56, 56}));
  const Workload c2 = named_workload("chimera/C2");
  EXPECT_EQ(c2.tensor(*c2.find_tensor("M")).shape, (std::vector<std::int64_t>{64, 74, 74}));
  const Workload c5 = named_workload("chimera/C5");
  EXPECT_EQ(c5.tensor(*c5.find_tensor("M")).shape, (std::vector<std::int64_t>{64, 57, 57}));
  EXPECT_EQ(to_text(c1, OpId(0)),
            "conv1: M[oc1,y,x] += I[ic,2*y+r1-1,2*x+s1-1] * W1[oc1,ic,r1,s1]");
  const Workload even = named_workload("conv-chain:h=8,w=8,k1=2,k2=4,st1=1");
  EXPECT_EQ(even.tensor(*even.find_tensor("M")).shape[1], 9);
  EXPECT_EQ(even.tensor(*even.find_tensor("O")).shape[1], 10);
  const Workload tiny = named_workload("conv-chain:ic=1,h=1,w=1,oc1=1,oc2=1,st1=7,st2=3,k1=9,k2=6");
  EXPECT_EQ(tiny.tensor(*tiny.find_tensor("O")).elements(), Elements(1));
}

TEST(Builtin, Conv1dChainAsInThePlan) {
  const Workload w = named_workload("conv1d-chain");
  EXPECT_EQ(operator_texts(w),
            (Texts{"conv1: M[y] += I[y+r] * W[r]", "conv2: O[h] += M[h+s] * V[s]"}));
  EXPECT_EQ(w.tensor(*w.find_tensor("I")).shape, (std::vector<std::int64_t>{14}));
  EXPECT_EQ(w.tensor(*w.find_tensor("M")).shape, (std::vector<std::int64_t>{12}));
}

TEST(Builtin, LayerNorm) {
  const Workload w = named_workload("layernorm:rows=5,cols=7");
  std::vector<std::string> names;
  for (OpId id : w.topological_order()) names.push_back(w.op(id).name);
  EXPECT_EQ(names, (Texts{"sum", "mean", "sub", "sq", "varsum", "rstd", "norm"}));
  EXPECT_EQ(w.compulsory_bytes(), Bytes(4 * (35 + 7 + 35)));
}

std::string shared_data() {
  if (const char* given = std::getenv("TILEWRIGHT_SHARED")) return given;
  return test::in_sources("../shared");
}

TEST(Builtin, RowsAreThePapersTables) {
  const std::string file = shared_data() + "/data/paper_tables.yaml";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const YAML::Node tables = YAML::LoadFile(file);
  const auto compare = [](const YAML::Node& table, const std::string& prefix,
                          const std::vector<std::string>& columns) {
    for (const auto& row : table) {
      const std::string name = prefix + row.first.as<std::string>();
      SCOPED_TRACE(name);
      std::string family = "gemm-chain:";
      if (columns[0] == "heads") family = "attention:";
      if (columns[0] == "ic") family = "conv-chain:";
      for (std::size_t c = 0; c < columns.size(); ++c)
        family += (c == 0 ? "" : ",") + columns[c] + "=" + row.second[c].as<std::string>();
      if (prefix == "mcfuser/") family += ",dtype=f16";
      WorkloadSpec expected = named_workload(family).spec();
      expected.name = name;
      EXPECT_EQ(named_workload(name).spec(), expected);
    }
  };
  compare(tables["chimera"]["table4"], "chimera/", {"batch", "m", "n", "k", "l"});
  compare(tables["chimera"]["table5"], "chimera/",
          {"ic", "h", "w", "oc1", "oc2", "st1", "st2", "k1", "k2"});
  // MCFuser's N is our l, its H our n.
  compare(tables["mcfuser"]["table2"], "mcfuser/", {"batch", "m", "l", "k", "n"});
  compare(tables["mcfuser"]["table3"], "mcfuser/", {"heads", "m", "l", "k", "n"});
}

TEST(Builtin, FlashFuserRowsAreItsTables) {
  const std::string file = shared_data() + "/data/flashfuser.yaml";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const YAML::Node tables = YAML::LoadFile(file);
  const auto compare = [&](const char* table, const std::string& family,
                           const std::vector<std::string>& columns) {
    int rows = 0;
    for (const auto& row : tables[table]) {
      const std::string name = "flashfuser/" + row.first.as<std::string>();
      SCOPED_TRACE(name);
      std::string text = family + "dtype=f16";
      for (std::size_t c = 0; c < columns.size(); ++c)
        text += "," + columns[c] + "=" + row.second[c].as<std::string>();
      WorkloadSpec expected = named_workload(text).spec();
      expected.name = name;
      EXPECT_EQ(named_workload(name).spec(), expected);
      ++rows;
    }
    return rows;
  };
  // FlashFuser's columns are M, N, K, L: its N is our l, its L our n.
  EXPECT_EQ(compare("gemm_chain", "gemm-chain:", {"m", "l", "k", "n"}), 10);
  EXPECT_EQ(compare("gated_ffn", "gated-ffn:", {"m", "l", "k", "n"}), 8);
  EXPECT_EQ(
      compare("conv_chain", "conv-chain:st1=1,st2=1,", {"ic", "h", "w", "oc1", "oc2", "k1", "k2"}),
      8);
}

TEST(Builtin, BadNames) {
  const struct {
    std::string name;
    const char* expect;
  } cases[] = {
      {"", "workload: '' is unknown"},
      {"gem-chain", "workload: 'gem-chain' is unknown, did you mean 'gemm-chain'?"},
      {"chimera/G13", "workload: 'chimera/G13' is unknown, did you mean 'chimera/G"},
      {"gemm-chain:", "gemm-chain: '' is not a parameter; accepted: m=512"},
      {"gemm-chain:m", "gemm-chain: 'm' is not a parameter"},
      {"gemm-chain:m=3,", "gemm-chain: '' is not a parameter"},
      {"gemm-chain:batches=3", "parameter: 'batches' is unknown, did you mean 'batch'?"},
      {"gemm-chain:m=0", "gemm-chain: m: 0 is not accepted; accepted: 1..2147483647"},
      {"gemm-chain:m=-5", "gemm-chain: m: -5 is not accepted"},
      {"gemm-chain:m=2147483648", "gemm-chain: m: 2147483648 is not accepted"},
      {"gemm-chain:m=99999999999999999999", "gemm-chain: m: 99999999999999999999 is not accepted"},
      {"gemm-chain:m=3x", "gemm-chain: m: 3x is not accepted"},
      {"gemm-chain:m=", "gemm-chain: m: '' is not accepted"},
      {"gemm-chain:m= 3", "gemm-chain: m:"},
      {"gemm-chain:m=3,m=3", "gemm-chain: m: is given twice"},
      {"gemm-chain:relu=2", "gemm-chain: relu: 2 is not accepted; accepted: 0..1"},
      {"gemm-chain:dtype=f8", "gemm-chain: dtype: 'f8' is unknown"},
      {"gemm:m=2147483647,n=2147483647,k=4", "gemm: tensors.C: has more bytes"},
      {"gemm:m=1100000000,n=1100000000,k=1100000000,dtype=i8", "gemm: operators.gemm: has an iter"},
      {"gemm:m=2000000000,n=2000000000,k=2000000000,dtype=i8", "gemm: tensors: have more bytes"},
      {"/nowhere/x.yaml", "/nowhere/x.yaml: cannot be read"},
      {"x\ny", "workload: 'x y' is unknown"},
  };
  for (const auto& c : cases)
    EXPECT_NE(error_of(c.name).find(c.expect), std::string::npos)
        << c.name << "\n  " << error_of(c.name);
}

TEST(Builtin, ReadsAFile) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("tilewright_" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << to_yaml(named_workload("chimera/G2"));
  EXPECT_EQ(named_workload(file.string()), named_workload("chimera/G2"));
  std::ofstream(file) << "loops: {m: 0}\noperators: []\n";
  EXPECT_NE(error_of(file.string()).find(file.string() + ":1: loops.m: 0"), std::string::npos);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace tilewright
