// Graphs of memory-intensive operators: normalisations, activations, optimizer steps, gates.
#include <cmath>

#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {
namespace {

Draft rows_of(const Values& v) {
  Draft d(v.dtype);
  d.loop("r", v["rows"]).loop("c", v["cols"]);
  return d;
}

RawWorkload layernorm_backward(const Values& v) {
  const std::string per_row = number_text(1.0 / static_cast<double>(v["cols"]));
  return rows_of(v)
      .op("centred: centred[r,c] = x[r,c] - mean[r]")
      .op("normal: normal[r,c] = centred[r,c] * rstd[r]")
      .op("scaled: scaled[r,c] = dy[r,c] * gain[c]")
      .op("sum1: sum1[r] += scaled[r,c]")
      .op("along: along[r,c] = scaled[r,c] * normal[r,c]")
      .op("sum2: sum2[r] += along[r,c]")
      .op("dx: dx[r,c] = (scaled[r,c] - sum1[r] * " + per_row + " - normal[r,c] * sum2[r] * " +
          per_row + ") * rstd[r]")
      .op("weighted: weighted[r,c] = dy[r,c] * normal[r,c]")
      .op("dgain: dgain[c] += weighted[r,c]")
      .op("dbias: dbias[c] += dy[r,c]")
      .take();
}

RawWorkload gelu(const Values& v) {
  return rows_of(v)
      .op("biased: biased[r,c] = x[r,c] + bias[c]")
      .op("cubic: cubic[r,c] = biased[r,c] + 0.044715 * biased[r,c] * square(biased[r,c])")
      .op("tanh: bent[r,c] = tanh(0.7978845608028654 * cubic[r,c])")
      .op("half: half[r,c] = 0.5 * biased[r,c]")
      .op("gelu: y[r,c] = half[r,c] * (1 + bent[r,c])")
      .take();
}

RawWorkload batchnorm(const Values& v) {
  return Draft(v.dtype)
      .loop("n", v["batch"])
      .loop("c", v["channels"])
      .loop("s", v["size"])
      // Inputs drawn at random may be negative, a variance may not.
      .op("rstd: rstd[c] = rsqrt(abs(variance[c]) + 1e-05)")
      .op("scale: scale[c] = rstd[c] * gain[c]")
      .op("shift: shift[c] = bias[c] - mean[c] * scale[c]")
      .op("scaled: scaled[n,c,s] = x[n,c,s] * scale[c]")
      .op("shifted: y[n,c,s] = scaled[n,c,s] + shift[c]")
      .take();
}

RawWorkload groupnorm(const Values& v) {
  const std::string each =
      number_text(1.0 / (static_cast<double>(v["channels"]) * static_cast<double>(v["size"])));
  return Draft(v.dtype)
      .loop("n", v["batch"])
      .loop("g", v["groups"])
      .loop("c", v["channels"])
      .loop("s", v["size"])
      .op("sum: sum[n,g] += x[n,g,c,s]")
      .op("mean: mean[n,g] = sum[n,g] * " + each)
      .op("sub: sub[n,g,c,s] = x[n,g,c,s] - mean[n,g]")
      .op("sq: sq[n,g,c,s] = square(sub[n,g,c,s])")
      .op("varsum: varsum[n,g] += sq[n,g,c,s]")
      .op("rstd: rstd[n,g] = rsqrt(varsum[n,g] * " + each + " + 1e-05)")
      .op("normal: normal[n,g,c,s] = sub[n,g,c,s] * rstd[n,g]")
      .op("affine: y[n,g,c,s] = normal[n,g,c,s] * gain[g,c] + bias[g,c]")
      .take();
}

RawWorkload residual_layernorm(const Values& v) {
  const std::string cols = std::to_string(v["cols"]);
  return rows_of(v)
      .op("biased: biased[r,c] = x[r,c] + bias[c]")
      .op("dropped: dropped[r,c] = biased[r,c] * keep[r,c] * 1.1111111111111112")
      .op("added: added[r,c] = dropped[r,c] + residual[r,c]")
      .op("sum: sum[r] += added[r,c]")
      .op("mean: mean[r] = sum[r] / " + cols)
      .op("sub: sub[r,c] = added[r,c] - mean[r]")
      .op("sq: sq[r,c] = square(sub[r,c])")
      .op("varsum: varsum[r] += sq[r,c]")
      .op("rstd: rstd[r] = rsqrt(varsum[r] / " + cols + " + 1e-05)")
      .op("norm: y[r,c] = sub[r,c] * rstd[r] * gain[c] + offset[c]")
      .take();
}

RawWorkload adam(const Values& v) {
  return Draft(v.dtype)
      .loop("i", v["size"])
      .op("first: m1[i] = 0.9 * m[i] + 0.1 * g[i]")
      .op("squared: g2[i] = square(g[i])")
      .op("second: v1[i] = 0.999 * abs(v[i]) + 0.001 * g2[i]")  // no second moment is negative, drawn ones are
      .op("mhat: mhat[i] = m1[i] * 1.1111")
      .op("vhat: vhat[i] = v1[i] * 1.0526")
      .op("root: root[i] = sqrt(vhat[i])")
      .op("step: step[i] = mhat[i] / (root[i] + 1e-08)")
      .op("update: p1[i] = p[i] - 0.001 * step[i]")
      .output("m1")
      .output("v1")
      .output("p1")
      .take();
}

RawWorkload lstm_cell(const Values& v) {
  const auto slice = [&](int gate) {
    return gate == 0 ? std::string("pre[b,j]")
                     : "pre[b,j+" + std::to_string(gate * v["hidden"]) + "]";
  };
  return Draft(v.dtype)
      .loop("b", v["batch"])
      .loop("g", 4 * v["hidden"])
      .loop("j", v["hidden"])
      .op("pre: pre[b,g] = xw[b,g] + hw[b,g] + bias[g]")
      .op("input: i[b,j] = sigmoid(" + slice(0) + ")")
      .op("forget: f[b,j] = sigmoid(" + slice(1) + ")")
      .op("cell: z[b,j] = tanh(" + slice(2) + ")")
      .op("out: o[b,j] = sigmoid(" + slice(3) + ")")
      .op("kept: kept[b,j] = f[b,j] * c0[b,j]")
      .op("state: c1[b,j] = kept[b,j] + i[b,j] * z[b,j]")
      .op("bent: bent[b,j] = tanh(c1[b,j])")
      .op("hidden: h1[b,j] = o[b,j] * bent[b,j]")
      .output("c1")
      .output("h1")
      .take();
}

RawWorkload masked_softmax(const Values& v) {
  return Draft(v.dtype)
      .loop("b", v["batch"])
      .loop("h", v["heads"])
      .loop("m", v["m"])
      .loop("l", v["l"])
      .op("scaled: T[b,h,m,l] = S[b,h,m,l] * 0.125")
      .op("masked: U[b,h,m,l] = select(lt(keep[b,l], 0), -10000, T[b,h,m,l])")
      .op("rowmax: R[b,h,m] max= U[b,h,m,l]")
      .op("exp: P[b,h,m,l] = exp(U[b,h,m,l] - R[b,h,m])")
      .op("rowsum: Z[b,h,m] += P[b,h,m,l]")
      .op("divide: Y[b,h,m,l] = P[b,h,m,l] / Z[b,h,m]")
      .take();
}

RawWorkload squeeze_excite(const Values& v) {
  return Draft(v.dtype)
      .loop("n", v["batch"])
      .loop("c", v["channels"])
      .loop("s", v["size"])
      .loop("j", v["squeezed"])
      .op("sum: sum[n,c] += x[n,c,s]")
      .op("mean: mean[n,c] = sum[n,c] / " + std::to_string(v["size"]))
      .op("squeeze: z[n,j] += mean[n,c] * W1[c,j]")
      .op("relu: a[n,j] = relu(z[n,j])")
      .op("excite: e[n,c] += a[n,j] * W2[j,c]")
      .op("gate: gate[n,c] = sigmoid(e[n,c])")
      .op("scale: y[n,c,s] = x[n,c,s] * gate[n,c]")
      .take();
}

/// A unit's halves concatenated, their channels taken in turn, split again. Outside of a tensor there are
/// zeros: a sum of two tensors, one of them shifted, is their concatenation.
RawWorkload shuffle_unit(const Values& v) {
  const std::int64_t half = v["channels"];
  if (half % 2 != 0)
    throw InputError({.field = "channels",
                      .value = std::to_string(half),
                      .problem = "is odd",
                      .accepted = "an even number: both results have whole pairs of channels"});
  const std::string many = std::to_string(half);
  return Draft(v.dtype)
      .loop("g", 2 * half)
      .loop("k", half)
      .loop("q", half / 2)
      .loop("j", 2)
      .loop("s", v["size"])
      .tensor("a", "k,s")
      .tensor("b", "k,s")
      .op("concat: joined[g,s] = a[g,s] + b[g-" + many + ",s]")
      .op("shuffle: shuffled[k,j,s] = joined[" + many + "*j+k,s]")
      .op("left: left[q,j,s] = shuffled[q,j,s]")
      .op("right: right[q,j,s] = shuffled[q+" + std::to_string(half / 2) + ",j,s]")
      .take();
}

/// GPT-2's attention of one new token: its keys and values behind those of `past` tokens, which are inputs.
RawWorkload kv_attention(const Values& v) {
  const std::string past = std::to_string(v["past"]);
  return Draft(v.dtype)
      .loop("b", v["batch"])
      .loop("h", v["heads"])
      .loop("l", v["past"] + 1)
      .loop("e", v["size"])
      .loop("v", v["size"])
      .tensor("pastK", "b,h," + past + ",e")
      .tensor("pastV", "b,h," + past + ",v")
      .tensor("newK", "b,h,1,e")
      .tensor("newV", "b,h,1,v")
      .op("keys: K[b,h,l,e] = pastK[b,h,l,e] + newK[b,h,l-" + past + ",e]")
      .op("values: V[b,h,l,v] = pastV[b,h,l,v] + newV[b,h,l-" + past + ",v]")
      .op("qk: S[b,h,l] += Q[b,h,e] * K[b,h,l,e]")
      .op("scaled: T[b,h,l] = S[b,h,l] * " + number_text(1 / std::sqrt(static_cast<double>(v["size"]))))
      .op("rowmax: top[b,h] max= T[b,h,l]")
      .op("exp: E[b,h,l] = exp(T[b,h,l] - top[b,h])")
      .op("rowsum: total[b,h] += E[b,h,l]")
      .op("share: P[b,h,l] = E[b,h,l] / total[b,h]")
      .op("pv: A[b,h,v] += P[b,h,l] * V[b,h,l,v]")
      .output("K")
      .output("V")
      .output("A")
      .take();
}

/// Each place has a window of weights of its own, for a group of channels.
RawWorkload involution_of(const Values& v) {
  if (v["kernel"] % 2 == 0)
    throw InputError({.field = "kernel",
                      .value = std::to_string(v["kernel"]),
                      .problem = "is even",
                      .accepted = "an odd number: the window is centred"});
  const std::string rows = std::to_string(v["size"]), less = std::to_string(v["kernel"] / 2);
  return Draft(v.dtype)
      .loop("g", v["channels"])
      .loop("k", v["group"])
      .loop("y", v["size"])
      .loop("x", v["size"])
      .loop("r", v["kernel"])
      .loop("s", v["kernel"])
      .tensor("image", "g,k," + rows + "," + rows)
      .op("weights: taps[g,r,s,y,x] = W[g,r,s,y,x] + Wb[g,r,s]")
      .op("involution: I[g,k,y,x] += image[g,k,y+r-" + less + ",x+s-" + less + "] * taps[g,r,s,y,x]")
      .op("biased: B[g,k,y,x] = I[g,k,y,x] + bias[g,k]")
      .op("relu: Y[g,k,y,x] = relu(B[g,k,y,x])")
      .take();
}

/// Without `gather` the items' rows are an input.
RawWorkload attention_unit(const Values& v) {
  Draft d(v.dtype);
  d.loop("b", v["batch"]).loop("t", v["items"]).loop("d", v["width"]);
  if (v["gather"] == 1) {
    d.tensor("table", std::to_string(v["rows"]) + ",d").tensor("ids", "b,t");
    d.type("ids", DType::i32).op("lookup: k[b,t,d] = table[ids[b,t],d]");
  }
  return d.op("product: product[b,t,d] = q[b,d] * k[b,t,d]")
      .op("distance: distance[b,t,d] = q[b,d] - k[b,t,d]")
      .op("mixed: mixed[b,t,d] = product[b,t,d] * w1[d] + distance[b,t,d] * w2[d]")
      .op("score: score[b,t] += mixed[b,t,d]")
      .op("masked: masked[b,t] = select(lt(seen[b,t], 0), -10000, score[b,t])")
      .op("most: most[b] max= masked[b,t]")
      .op("exp: e[b,t] = exp(masked[b,t] - most[b])")
      .op("norm: z[b] += e[b,t]")
      .op("share: a[b,t] = e[b,t] / z[b]")
      .op("weighted: weighted[b,t,d] = a[b,t] * k[b,t,d]")
      .op("interest: interest[b,d] += weighted[b,t,d]")
      .take();
}

/// Names of the tensors and operators of one of the two layer normalisations end in `n`.
void add_layernorm(Draft& d, const std::string& x, const std::string& y, const std::string& n,
                   const std::string& c, std::int64_t width) {
  const std::string per = number_text(1.0 / static_cast<double>(width)), at = "[t," + c + "]";
  d.op("sum" + n + ": sum" + n + "[t] += " + x + at);
  d.op("mean" + n + ": mean" + n + "[t] = sum" + n + "[t] * " + per);
  d.op("sub" + n + ": sub" + n + at + " = " + x + at + " - mean" + n + "[t]");
  d.op("sq" + n + ": sq" + n + at + " = square(sub" + n + at + ")");
  d.op("varsum" + n + ": varsum" + n + "[t] += sq" + n + at);
  d.op("rstd" + n + ": rstd" + n + "[t] = rsqrt(varsum" + n + "[t] * " + per + " + 1e-05)");
  d.op("norm" + n + ": " + y + at + " = sub" + n + at + " * rstd" + n + "[t] * gain" + n + "[" + c +
       "] + offset" + n + "[" + c + "]");
}

/// Tokens t read tokens s; heads h of size e (v of the values); width d, c after the MLP; hidden f.
RawWorkload transformer_block(const Values& v) {
  const std::int64_t width = v["heads"] * v["size"];
  Draft d(v.dtype);
  d.loop("t", v["tokens"]).loop("s", v["tokens"]).loop("h", v["heads"]).loop("e", v["size"]);
  d.loop("v", v["size"]).loop("d", width).loop("f", v["hidden"]).loop("c", width);
  d.tensor("x", "t,d");
  d.op("query: Q[h,t,e] += x[t,d] * Wq[h,d,e]");
  d.op("key: K[h,s,e] += x[s,d] * Wk[h,d,e]");
  d.op("value: V[h,s,v] += x[s,d] * Wv[h,d,v]");
  d.op("qk: S[h,t,s] += Q[h,t,e] * K[h,s,e]");
  d.op("scaled: T[h,t,s] = S[h,t,s] * " +
       number_text(1.0 / std::sqrt(static_cast<double>(v["size"]))));
  d.op("rowmax: R[h,t] max= T[h,t,s]");
  d.op("exp: P[h,t,s] = exp(T[h,t,s] - R[h,t])");
  d.op("rowsum: Z[h,t] += P[h,t,s]");
  d.op("pv: O[h,t,v] += P[h,t,s] * V[h,s,v]");
  d.op("divide: E[h,t,v] = O[h,t,v] / Z[h,t]");
  d.op("project: A[t,d] += E[h,t,v] * Wo[h,v,d]");
  d.op("residual1: x1[t,d] = A[t,d] + bo[d] + x[t,d]");
  add_layernorm(d, "x1", "y1", "1", "d", width);
  d.op("fc1: U[t,f] += y1[t,d] * W1[d,f]");
  d.op("biased: B[t,f] = U[t,f] + b1[f]");
  d.op("cubic: C[t,f] = B[t,f] + 0.044715 * B[t,f] * square(B[t,f])");
  d.op("bent: H[t,f] = tanh(0.7978845608028654 * C[t,f])");
  d.op("gelu: G[t,f] = 0.5 * B[t,f] * (1 + H[t,f])");
  d.op("fc2: M[t,c] += G[t,f] * W2[f,c]");
  d.op("residual2: x2[t,c] = M[t,c] + b2[c] + y1[t,c]");
  add_layernorm(d, "x2", "y2", "2", "c", width);
  return d.take();
}

/// Both halves of a head turn by the angles of their token.
RawWorkload rotary(const Values& v) {
  const std::string half = std::to_string(v["half"]);
  return Draft(v.dtype)
      .loop("t", v["tokens"])
      .loop("h", v["heads"])
      .loop("i", v["half"])
      .tensor("x", "t,h," + std::to_string(2 * v["half"]))
      .op("low: low[t,h,i] = x[t,h,i] * cosine[t,i] - x[t,h,i+" + half + "] * sine[t,i]")
      .op("high: high[t,h,i] = x[t,h,i+" + half + "] * cosine[t,i] + x[t,h,i] * sine[t,i]")
      .take();
}

RawWorkload column_norm(const Values& v) {
  const std::string per_column = number_text(1.0 / static_cast<double>(v["rows"]));
  return rows_of(v)
      .op("sum: sum[c] += x[r,c]")
      .op("mean: mean[c] = sum[c] * " + per_column)
      .op("sub: sub[r,c] = x[r,c] - mean[c]")
      .op("sq: sq[r,c] = square(sub[r,c])")
      .op("varsum: varsum[c] += sq[r,c]")
      .op("rstd: rstd[c] = rsqrt(varsum[c] * " + per_column + " + 1e-05)")
      .op("norm: y[r,c] = sub[r,c] * rstd[c]")
      .take();
}

RawWorkload cross_entropy(const Values& v) {
  Draft d = rows_of(v);
  if (v["soft"] == 0) d.tensor("x", "r,c").tensor("label", "r").type("label", DType::i32);
  d.op("most: most[r] max= x[r,c]")
      .op("exp: e[r,c] = exp(x[r,c] - most[r])")
      .op("sum: sum[r] += e[r,c]");
  if (v["soft"] == 0)
    return d.op("picked: picked[r] = x[r,label[r]]")
        .op("loss: loss[r] = log(sum[r]) + most[r] - picked[r]")
        .take();
  return d.op("logsum: logsum[r] = log(sum[r]) + most[r]")
      .op("part: part[r,c] = (logsum[r] - x[r,c]) * target[r,c]")
      .op("loss: loss[r] += part[r,c]")
      .take();
}

RawWorkload rmsnorm(const Values& v) {
  const std::string per_row = number_text(1.0 / static_cast<double>(v["cols"]));
  return rows_of(v)
      .op("sq: sq[r,c] = square(x[r,c])")
      .op("sum: sum[r] += sq[r,c]")
      .op("rstd: rstd[r] = rsqrt(sum[r] * " + per_row + " + 1e-05)")
      .op("norm: y[r,c] = x[r,c] * rstd[r] * gain[c]")
      .take();
}

RawWorkload rmsnorm_backward(const Values& v) {
  const std::string per_row = number_text(1.0 / static_cast<double>(v["cols"]));
  return rows_of(v)
      .op("normal: normal[r,c] = x[r,c] * rstd[r]")
      .op("scaled: scaled[r,c] = dy[r,c] * gain[c]")
      .op("along: along[r,c] = scaled[r,c] * normal[r,c]")
      .op("sum: sum[r] += along[r,c]")
      .op("dx: dx[r,c] = (scaled[r,c] - normal[r,c] * sum[r] * " + per_row + ") * rstd[r]")
      .op("weighted: weighted[r,c] = dy[r,c] * normal[r,c]")
      .op("dgain: dgain[c] += weighted[r,c]")
      .take();
}

RawWorkload swiglu(const Values& v) {
  const std::string width = std::to_string(2 * v["cols"]);
  return rows_of(v)
      .tensor("x", "r," + width)
      .op("gate: gate[r,c] = x[r,c] * sigmoid(x[r,c])")
      .op("gated: y[r,c] = gate[r,c] * x[r,c+" + std::to_string(v["cols"]) + "]")
      .take();
}

RawWorkload add_layernorm_gelu(const Values& v) {
  const std::string per_row = number_text(1.0 / static_cast<double>(v["cols"]));
  return rows_of(v)
      .op("added: added[r,c] = x[r,c] + residual[r,c]")
      .op("sum: sum[r] += added[r,c]")
      .op("mean: mean[r] = sum[r] * " + per_row)
      .op("sub: sub[r,c] = added[r,c] - mean[r]")
      .op("sq: sq[r,c] = square(sub[r,c])")
      .op("varsum: varsum[r] += sq[r,c]")
      .op("rstd: rstd[r] = rsqrt(varsum[r] * " + per_row + " + 1e-05)")
      .op("normal: normal[r,c] = sub[r,c] * rstd[r] * gain[c] + offset[c]")
      .op("cubic: cubic[r,c] = normal[r,c] + 0.044715 * normal[r,c] * square(normal[r,c])")
      .op("tanh: bent[r,c] = tanh(0.7978845608028654 * cubic[r,c])")
      .op("gelu: y[r,c] = 0.5 * normal[r,c] * (1 + bent[r,c])")
      .take();
}

}  // namespace

std::vector<Family> graph_families() {
  const Parameter rows{"rows", 4096}, cols{"cols", 768};
  return {
      {"layernorm-backward",
       "gradients of layer normalisation to its input, gain and bias",
       "",
       {rows, cols},
       layernorm_backward},
      {"gelu", "bias and GELU (by tanh) as five operators", "", {rows, cols}, gelu},
      {"batchnorm",
       "batch normalisation in inference, [batch, channels, size]",
       "",
       {{"batch", 32}, {"channels", 64}, {"size", 3136}},
       batchnorm},
      {"groupnorm",
       "group normalisation, [batch, groups, channels of a group, size]",
       "",
       {{"batch", 32}, {"groups", 32}, {"channels", 8}, {"size", 784}},
       groupnorm},
      {"residual-layernorm",
       "bias, dropout (a given mask), residual, layer normalisation",
       "",
       {rows, cols},
       residual_layernorm},
      {"adam",
       "one step of Adam; moments and parameters are outputs",
       "",
       {{"size", 4194304}},
       adam},
      {"lstm-cell",
       "the element-wise part of an LSTM cell; gates are slices of one tensor",
       "",
       {{"batch", 4096}, {"hidden", 768, 1, 268435456}},
       lstm_cell},
      {"masked-softmax",
       "attention's scaling, masking and softmax",
       "",
       {{"batch", 8}, {"heads", 12}, {"m", 128}, {"l", 384}},
       masked_softmax},
      {"squeeze-excite",
       "a squeeze-and-excite gate with its two small products",
       "",
       {{"batch", 32}, {"channels", 256}, {"size", 784}, {"squeezed", 16}},
       squeeze_excite},
      {"attention-unit",
       "a recommendation model's attention over a user's items, looked up by id (gather=1)",
       "after DIEN's attention unit; FusionStitching, table 1 (DIEN)",
       {{"batch", 256}, {"items", 100}, {"width", 64}, {"rows", 100000}, {"gather", 1, 0, 1}},
       attention_unit},
      {"shuffle-unit",
       "a ShuffleNet unit's data movement: two halves concatenated, shuffled by channel, split",
       "Ma et al., ShuffleNet V2, ECCV 2018; PowerFusion, figure 3",
       {{"channels", 58, 2, 65536}, {"size", 784}},
       shuffle_unit},
      {"kv-attention",
       "GPT-2's attention of one token with a cache of keys and values: concatenations, softmax, two "
       "products of matrices with vectors",
       "Radford et al., GPT-2, 2019; PowerFusion, figure 12",
       {{"batch", 128}, {"past", 127, 1, 1 << 20}, {"heads", 12}, {"size", 64}},
       kv_attention},
      {"involution",
       "RedNet's involution of groups of channels, with biases and a ReLU",
       "Li et al., Involution, CVPR 2021; PowerFusion, section 8.4",
       {{"channels", 4}, {"group", 16}, {"size", 56, 1, 16384}, {"kernel", 7, 1, 63}},
       involution_of},
      {"rotary",
       "rotary position embedding; both halves of a head are slices of one tensor",
       "Su et al., RoFormer, 2021",
       {{"tokens", 4096}, {"heads", 32}, {"half", 64, 1, 1073741823}},
       rotary},
      {"column-norm",
       "each column normalised by its mean and variance",
       "",
       {rows, cols},
       column_norm},
      {"cross-entropy",
       "each row's cross entropy by its label's logit, looked up; soft=1: by a target for each "
       "logit",
       "",
       {rows, {"cols", 5120}, {"soft", 0, 0, 1}},
       cross_entropy},
      {"rmsnorm",
       "root-mean-square normalisation with gain",
       "Zhang and Sennrich, Root mean square layer normalization, NeurIPS 2019",
       {rows, cols},
       rmsnorm},
      {"rmsnorm-backward",
       "gradients of rmsnorm to its input and gain",
       "",
       {rows, cols},
       rmsnorm_backward},
      {"swiglu",
       "the SwiGLU gate; both halves are slices of one tensor",
       "Shazeer, GLU variants improve transformer, 2020",
       {rows, {"cols", 768, 1, 1073741823}},
       swiglu},
      {"add-layernorm-gelu",
       "residual, layer normalisation, GELU (by tanh)",
       "",
       {rows, cols},
       add_layernorm_gelu},
      {"transformer-block",
       "projections, attention with heads, residual, layer normalisation, MLP with GELU, residual, "
       "layer normalisation",
       "Vaswani et al., Attention is all you need, NeurIPS 2017, with GELU by tanh",
       {{"tokens", 48}, {"heads", 4, 1, 65536}, {"size", 16, 1, 65536}, {"hidden", 256}},
       transformer_block},
  };
}

}  // namespace tilewright::builtin
