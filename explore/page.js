// The page: command lines from its fields, the answers as tables and drawings. Its state is the address's hash.
'use strict';

const kFields = ['workload', 'machine', 'model', 'order', 'tiles', 'tree', 'capacity', 'notation'];
const kPlan = ['machine', 'model', 'order', 'tiles', 'tree', 'capacity'];  // what makes one plan of a workload another
const kRemembered = 2000;  // answers
// Asked while the page loads: the browser compiles a function when it is called first, and better when it was called often. The first
// answers should not wait for that. Those of many orders are asked of the worker that answers first.
const kFirst = ['explain', 'predict', 'simulate'].map(verb => [verb, 'gemm-chain:m=8,n=8,k=8,l=8', '-m', 'scratchpad:16K', '--model', 'chimera']);
const kManyOrders = ['conv-chain:ic=8,h=16,w=16,oc1=8,oc2=8', 'gemm-chain3:m=32,n=16,k=16,l=32,p=16'].map(
  workload => ['explain', workload, '-m', 'scratchpad:16K', '--capacity', '3000B', '--model', 'chimera', '--order', 'best']);
const byId = id => document.getElementById(id);
const bytes = n => n.toLocaleString('en') + ' B';
const state = {step: '', beside: ''};  // beside: the kept plan's fields, as an address has them
const answers = new Map();
let engine = null;          // in the page itself: steps and lists, which take a few milliseconds
const lanes = {};           // in workers: plans, what models say of one beside that, walks and rankings, which may take long
let machines = [];

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const field = name => byId(name).value.trim();
const subject = () => field('notation') ? 'workload.yaml' : field('workload');

function questionOf(words) {
  const question = {words};
  if (words.includes('workload.yaml')) question.subject = byId('notation').value;
  return question;
}
/** Answers asked last are kept, so that a step back costs nothing. */
function remember(question, said) {
  if (answers.size >= kRemembered) answers.delete(answers.keys().next().value);
  if (said.status !== 1) answers.set(JSON.stringify(question), said);
  return said;
}

/** The answer to a command line, at once: for what takes a few milliseconds. */
function asked(words) {
  const question = questionOf(words);
  try {
    return answers.get(JSON.stringify(question)) || remember(question, engine(question));
  } catch (e) {
    return {status: 1, error: 'The engine stopped (' + e.message + '). Load the page again.'};
  }
}

/** The answer from a worker: `plans`, `models`, `walks` or `orders`. Never comes where the fields have changed meanwhile. */
async function ask(words, lane = 'plans') {
  const question = questionOf(words);
  return answers.get(JSON.stringify(question)) || remember(question, await lanes[lane].ask(question));
}

/** The fields' options, as the command takes them; `from`: a kept plan's fields in their place. */
function options(names, from = null) {
  return names.flatMap(name => {
    const value = from ? from.get(name) || '' : field(name);
    return value ? ['--' + name, value] : [];
  });
}
const quoted = word => /^[\w:=,.\/-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";
const commandLine = words => 'tilewright ' + words.map(quoted).join(' ');

function table(into, heads, rows) {
  const head = element('tr', {}, ...heads.map(h => element('th', {scope: 'col'}, h)));
  const body = rows.map(r => element('tr', {}, ...r.map((c, i) =>
    i === 0 ? element('th', {scope: 'row'}, c) : element('td', /^[\d,]+( B)?$/.test(c) ? {class: 'n'} : {}, c))));
  byId(into).replaceChildren(element('thead', {}, head), element('tbody', {}, ...body));
}

/** An answer's document, its command line shown; null and its reason in the view's error where there is none. */
function answered(view, words, said) {
  byId(view + '-command').textContent = commandLine(words);
  const why = said.error || (said.status ? said.answer.reason : '');
  byId(view + '-error').textContent = why;
  return why ? null : said.answer;
}

/** The words of the plan that fields say: a tree, an order, the best order of the model's, or the model's own plan. */
async function planWords(from = null) {
  const value = name => from ? from.get(name) || '' : field(name);
  const common = [subject(), ...options(['machine', 'capacity'], from)];
  if (value('tree')) return [...common, ...options(['tree', 'tiles'], from)];
  if (value('order')) return [...common, ...options(['order', 'tiles', 'model'], from)];
  const model = options(['model'], from), own = [...common, ...model];
  const withOrder = (order, tiles) => [...common, '--order', order, '--tiles', value('tiles') || Object.entries(tiles).map(t => t.join('=')).join(','), ...model];
  const best = (await ask(orderAsked('best', from))).answer?.orders?.[0];
  if (!best?.feasible) return own;
  const plan = withOrder(best.order, best.tiles);
  return (await ask(['explain', ...plan, '--resolved'])).answer?.fits ? plan : own;  // which says why nothing fits
}
/** The ranking of all orders, and one row: of an order, or the plan's ("best"), which is found sooner than all. */
const ordersAsked = (from = null) => ['explain', subject(), ...options(['machine', 'capacity', 'model', 'tiles'], from)];
const orderAsked = (order, from = null) => [...ordersAsked(from), '--order', order];
const ranked = orders => [...(orders || [])].sort((a, b) => (b.feasible - a.feasible) || a.volume_bytes - b.volume_bytes);
const moved = said => (said?.traffic || []).reduce((sum, t) => sum + t.read_bytes + t.written_bytes, 0);

async function showOrders() {
  const said = answered('orders', ordersAsked(), await ask(ordersAsked(), 'orders'));
  const orders = ranked(said?.orders);
  table('orders', ['Order', 'Bytes moved', 'Bytes held', 'Tiles', 'Verdict'], orders.map(o => {
    const pick = element('button', {type: 'button', 'aria-label': 'Take order ' + o.order}, o.order);
    pick.onclick = () => { byId('order').value = o.order; byId('tree').value = ''; changed(); };
    const size = o.volume_elements ? o.volume_bytes / o.volume_elements : 0;
    return [pick, o.volume_bytes === undefined ? '' : bytes(o.volume_bytes), size ? bytes(o.memory_elements * size) : '',
      o.tiles ? Object.entries(o.tiles).map(t => t.join('=')).join(' ') : '',
      o.feasible ? 'feasible' : o.infeasible_reason || o.reason || 'not feasible'];
  }));
  if (said && !said.orders) byId('orders-error').textContent = 'This model ranks no orders.';
}

/** The nest as lines of code, a line a loop, load, store or compute. */
function nestLines(node, depth = 0) {
  const more = node.children.flatMap(c => nestLines(c, depth + (node.kind === 'sequence' ? 0 : 1)));
  if (node.kind === 'sequence') return more;
  const text = node.kind === 'loop' ? `for ${node.name} by ${node.step}: ${node.trips} ${node.trips === 1 ? 'iteration' : 'iterations'}` :
    node.kind === 'load' || node.kind === 'store' ? `${node.kind} ${node.name} ${(node.tile || []).join(' x ')}${node.bytes ? ', ' + bytes(node.bytes) : ''}` : `${node.kind} ${node.name}`;
  const line = element('li', {style: `padding-left: ${2 * depth}ch`}, text);
  if (node.kind === 'compute') line.dataset.compute = node.name;
  return [line, ...more];
}

const dataLink = text => 'data:text/plain;charset=utf-8,' + encodeURIComponent(text);

/** What plan -o would write: the resolved kernels, so that nothing in it is left to a default. */
function planFile(resolved) {
  const text = byId('notation').value, lines = ['schema: 1'];
  if (field('notation')) lines.push('workload:', ...text.split('\n').map(l => '  ' + l));
  else lines.push('workload: ' + JSON.stringify(field('workload')));
  lines.push('machine: ' + JSON.stringify(field('machine')), 'kernels: ' + JSON.stringify(resolved.resolved.kernels, null, 2));
  return lines.join('\n') + '\n';
}

async function showPlan(plan) {
  const words = ['explain', ...plan, '--resolved'], resolved = answered('tree', words, await ask(words));
  byId('trees').textContent = resolved ? resolved.trees.join('\n') : '';
  byId('nest').replaceChildren(...(resolved?.kernels || []).flatMap(k => nestLines(k.nodes)));
  byId('plan-file').hidden = !resolved;
  if (resolved) byId('plan-file').href = dataLink(planFile(resolved));
  byId('workload-file').hidden = !field('notation');
  byId('workload-file').href = dataLink(byId('notation').value);
  return resolved;
}

/** The traffic that a model predicts of the plan; empty where it does not say. */
async function predicted(plan, resolved, model, lane) {
  const kernels = resolved?.resolved.kernels || [];
  const pins = Object.entries(kernels[0]?.pins || {}).filter(p => typeof p[1] === 'string').flatMap(p => ['--pin', p.join('=')]);
  const at = plan.findIndex(w => w === '--model'), withoutModel = at < 0 ? plan : plan.toSpliced(at, 2);
  const says = withoutModel.includes('--order') || withoutModel.includes('--tree');
  const words = says ? withoutModel : kernels.length === 1 ? [...withoutModel, '--tree', kernels[0].tree, ...pins] : null;
  const said = words ? await ask(['predict', ...words, '--model', model], lane) : {};
  return said.status === 0 && said.answer.traffic || [];
}
/** What `exact` and the plan's model predict, and which loop decides each tensor's bytes. */
async function predictions(plan, resolved) {
  const model = field('model') || 'chimera', alone = model === 'exact' || field('tree');
  const order = plan.includes('--order') ? plan[plan.indexOf('--order') + 1] : null;
  const row = async () => {
    if (!order) return null;
    const best = field('order') ? null : (await ask(orderAsked('best'))).answer?.orders?.[0];
    return best?.order === order ? best : (await ask(orderAsked(order))).answer?.orders?.[0];
  };
  const [exact, own, decides] = await Promise.all([predicted(plan, resolved, 'exact', 'plans'), alone ? [] : predicted(plan, resolved, model, 'models'), row()]);
  return {model, exact, own, deciding: decides?.tensors || {}};
}

/** A row a tensor and boundary. `said`: what was simulated, null before that. */
function showTraffic({model, exact, own, deciding}, said) {
  const key = t => t.tensor + ' ' + t.boundary, sum = t => t.read_bytes + t.written_bytes, by = all => new Map(all.map(t => [key(t), sum(t)]));
  const byExact = by(exact), byOwn = by(own), rows = said ? said.traffic : exact;
  const cell = (from, t) => from.has(key(t)) ? bytes(from.get(key(t))) : 'not available', count = n => n?.toLocaleString('en') || '';
  table('traffic', ['Tensor', 'Boundary', 'Read', 'Written', 'Hits', 'Misses', 'Predicted by exact', `Predicted by ${model}`, 'Decided by loop'],
    rows.map(t => [t.tensor, t.boundary, ...(said ? [bytes(t.read_bytes), bytes(t.written_bytes), count(t.hits), count(t.misses)] : ['', '', '', '']),
      cell(byExact, t), cell(byOwn, t), deciding[t.tensor]?.decided_by || '']));
  show(byId('bars'), rows.length ? barChart('Bytes of each tensor at each boundary, simulated and predicted', rows.map(t => {
    const bars = said ? [{label: 'simulated', colour: '#0072b2', value: sum(t)}] : [];
    if (byExact.has(key(t))) bars.push({label: 'exact', colour: '#009e73', value: byExact.get(key(t))});
    if (byOwn.has(key(t))) bars.push({label: model, colour: '#e69f00', value: byOwn.get(key(t))});
    return {name: key(t), bars};
  })) : null, 'traffic.svg');
}

/** Tiles that the nest computes, about: partial ones at the edges count as any. */
const tilesOf = node => node.kind === 'compute' ? 1 : (node.trips || 1) * node.children.reduce((sum, child) => sum + tilesOf(child), 0);

let perTile = 0;  // milliseconds of a walk, as the last long one had them
/** The walk's answer, its progress in the status line from half a second on. */
async function simulated(plan, resolved, predictedBytes) {
  const began = performance.now(), tiles = (resolved?.kernels || []).reduce((sum, k) => sum + tilesOf(k.nodes), 0);
  const seconds = () => Math.round((performance.now() - began) / 1000);
  const about = () => perTile ? `, about ${Math.max(1, Math.round(perTile * tiles / 1000))} s` : '';
  byId('status').textContent = predictedBytes ? `Predicted by exact: ${bytes(predictedBytes)} cross all boundaries.` : '';
  clearInterval(simulated.timer);
  simulated.timer = setInterval(() => {
    byId('progress').textContent = `Simulating ${tiles.toLocaleString('en')} tiles${about()}: ${seconds()} s so far.`;
  }, 500);
  const words = ['simulate', ...plan], said = await ask(words, 'walks'), took = performance.now() - began;
  clearInterval(simulated.timer);
  byId('progress').textContent = '';
  if (took > 50 && tiles) perTile = took / tiles;
  document.body.dataset.walked = took;
  return answered('simulated', words, said);
}

async function showBeside(plan, said) {
  const kept = state.beside ? new URLSearchParams(state.beside) : null;
  byId('swap').hidden = byId('forget').hidden = !kept;
  byId('beside-note').textContent = kept ? '' : 'Keep a plan, then change a field: both stand here.';
  if (!kept) return byId('beside').replaceChildren();
  const other = await planWords(kept), theirs = await ask(['simulate', ...other], 'walks');
  byId('beside-note').textContent = `Kept: ${commandLine(['simulate', ...other])}. This: ${commandLine(['simulate', ...plan])}.`;
  const why = theirs.error || (theirs.status ? theirs.answer.reason : '');
  const by = answer => new Map((answer?.traffic || []).map(t => [t.tensor + ' ' + t.boundary, t.read_bytes + t.written_bytes]));
  const left = by(why ? null : theirs.answer), right = by(said);
  const ratio = (a, b) => a && b !== undefined ? (b / a).toFixed(3) : '';
  const rows = [...new Set([...left.keys(), ...right.keys()])].map(k =>
    [k, left.has(k) ? bytes(left.get(k)) : '0 B', right.has(k) ? bytes(right.get(k)) : '0 B', ratio(left.get(k), right.get(k))]);
  const sums = [moved(why ? null : theirs.answer), moved(said)], held = a => Object.entries(a?.memory || {}).map(m => m[0] + ' ' + bytes(m[1])).join(', ');
  rows.push(['All', bytes(sums[0]), bytes(sums[1]), ratio(...sums)], ['Held', why || held(theirs.answer), held(said), '']);
  table('beside', ['Bytes moved', 'Kept plan', 'This plan', 'This / kept'], rows);
}

/** Bytes of a size as the command takes it; null for what a slider cannot stand for. */
function sizeOf(text) {
  const said = /^(\d+(?:\.\d+)?)\s*(B|K|M|G)?$/i.exec(text.trim());
  return said && Number(said[1]) * ({B: 1, K: 1024, M: 1048576, G: 1073741824}[(said[2] || 'B').toUpperCase()]);
}
/** Room of the level that plans are made for, as the machine has it; null where the page does not know. */
function room() {
  const own = /^(?:scratchpad|cache):([^,\/]+)/.exec(field('machine'));
  if (own) return sizeOf(own[1]);
  return machines.find(m => m.name === field('machine'))?.levels.at(-1).capacity_bytes || null;
}
const kLeast = 64;
const dragged = at => Math.round(kLeast * (room() / kLeast) ** (at / 96) / 4) * 4;
function showSlider() {
  const most = room(), size = field('capacity') ? sizeOf(field('capacity')) : most;
  byId('slider').disabled = !(most > kLeast);
  if (byId('slider').disabled || !size) return;
  byId('slider').value = Math.round(96 * Math.log(size / kLeast) / Math.log(most / kLeast));
  byId('slider').setAttribute('aria-valuetext', bytes(size));
  byId('dragged').textContent = bytes(size);
}

async function showCurve(said, resolved) {
  const words = ['explain', subject(), ...options(['machine']), '--curve'], mine = turn;
  const capacity = field('capacity') ? sizeOf(field('capacity')) : room();  // of the plan, before it is changed again
  const found = await ask(words, 'orders');
  if (mine !== turn) return;
  const answer = answered('curve', words, found);
  if (!answer?.curve) {
    byId('curve-says').textContent = '';
    return show(byId('curve'), null);
  }
  const memory = Object.values(resolved?.memory || said?.memory || {}).at(-1);
  // From and to home, which is what the curve counts.
  const plan = said && memory ? {memory, bytes: moved({traffic: said.traffic.filter(t => t.boundary === said.traffic[0].boundary)})} : null;
  show(byId('curve'), curveChart(answer.curve, plan, capacity), 'curve.svg');
  const at = capacity && answer.curve.filter(p => p.buffer_bytes <= capacity).at(-1);
  const part = (name, value) => value === undefined || value === null ? [] : [`${name} ${bytes(value)}`];
  byId('curve-says').textContent = (plan ? `The plan holds ${bytes(plan.memory)} and moves ${bytes(plan.bytes)} from and to home.` : '') + (at ?
    ` At a capacity of ${bytes(capacity)}: ` + [...part('attainable fused', at.fused?.attainable_bytes), ...part('proven bound fused', at.fused?.proven_bytes),
      ...part('attainable unfused', at.unfused?.attainable_bytes)].join('; ') + '.' : '');
}

let turn = 0;
/** The answer to a change: first the plan and what is predicted of it, then the walk and the rest. */
async function update() {
  const mine = ++turn, began = performance.now();
  /** Lets the page draw; does not return where the fields have changed meanwhile. */
  const pause = () => new Promise(go => setTimeout(() => mine === turn && go(), 0));
  for (const lane of Object.values(lanes)) lane.abandon();
  document.body.dataset.ready = document.body.dataset.answered = 'no';
  byId('link').href = written();
  clearInterval(simulated.timer);
  byId('progress').textContent = '';
  const plan = await planWords(), resolved = await showPlan(plan), known = await predictions(plan, resolved);
  showTraffic(known, null);
  showSlider();
  byId('notation-error').textContent = field('notation') ? byId('tree-error').textContent : '';
  byId('took').textContent = `Answered in ${Math.round(performance.now() - began)} ms.`;
  document.body.dataset.took = performance.now() - began;
  document.body.dataset.answered = 'yes';
  await pause();
  const orders = showOrders();  // beside the walk
  const said = await simulated(plan, resolved, moved({traffic: known.exact}));
  showTraffic(known, said);
  byId('status').textContent = said ? 'Simulated: ' + bytes(moved(said)) + ' cross all boundaries.' : 'No plan to simulate.';
  await pause();
  await prepareSteps(plan, said, resolved);
  showStep();
  await pause();
  await showBeside(plan, said);
  await pause();
  await orders;
  await showCurve(said, resolved);
  await sampleHolding();
  await pause();
  document.body.dataset.ready = 'yes';
}

/** Every field that is not empty, or is where the page begins with something. */
const written = () => '#' + new URLSearchParams([...kFields.filter(f => byId(f).value || byId(f).defaultValue).map(f => [f, byId(f).value]),
  ...Object.entries(state).filter(s => s[1])]);
function keepState() {
  location.replace(written());
  byId('link').href = location.hash;
}
let due = 0;
function changed() {
  keepState();
  clearTimeout(due);
  ++turn;  // what is under way answers the fields as they were
  document.body.dataset.ready = document.body.dataset.answered = 'no';
  due = setTimeout(update, 60);
}
function readState() {
  for (const f of kFields) byId(f).value = byId(f).defaultValue;
  Object.assign(state, {step: '', beside: ''});
  for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
    if (kFields.includes(name)) byId(name).value = value;
    else if (name in state) state[name] = value;
  byId('writing').open = Boolean(field('notation'));
}

function listen() {
  for (const f of kFields) byId(f).addEventListener('input', changed);
  byId('slider').oninput = () => { byId('capacity').value = dragged(byId('slider').value) + 'B'; changed(); };
  byId('start').onclick = () => {
    const said = asked(['workloads', field('workload')]);
    byId('notation-error').textContent = said.error || '';
    if (said.answer) { byId('notation').value = said.answer.file; changed(); }
  };
  byId('discard').onclick = () => { byId('notation').value = ''; changed(); };
  byId('keep').onclick = () => { state.beside = new URLSearchParams(kPlan.map(f => [f, field(f)]).filter(f => f[1])).toString(); changed(); };
  byId('forget').onclick = () => { state.beside = ''; changed(); };
  byId('swap').onclick = () => {
    const kept = new URLSearchParams(state.beside);
    state.beside = new URLSearchParams(kPlan.map(f => [f, field(f)]).filter(f => f[1])).toString();
    for (const f of kPlan) byId(f).value = kept.get(f) || '';
    changed();
  };
  byId('first').onclick = () => goTo(1);
  byId('back').onclick = () => goTo(Number(byId('step').value) - 1);
  byId('next').onclick = () => goTo(Number(byId('step').value) + 1);
  byId('last').onclick = () => goTo(stepper.most);
  byId('play').onclick = togglePlay;
  byId('step').oninput = () => goTo(Number(byId('step').value));
  addEventListener('hashchange', () => {
    if (written() === location.hash) return;
    readState();
    update();
  });
}

async function begin() {
  const coded = Uint8Array.from(atob(TW_MODULE), c => c.charCodeAt(0));
  const plain = new Blob([coded]).stream().pipeThrough(new DecompressionStream('gzip'));
  const module = await WebAssembly.compile(await new Response(plain).arrayBuffer());
  engine = await TwEngine.start(module);
  for (const lane of ['plans', 'models', 'walks', 'orders']) lanes[lane] = new TwLane(module);
  await Promise.all([...kFirst.flatMap(words => Object.values(lanes).map(lane => lane.ask({words}))), ...kManyOrders.map(words => lanes.plans.ask({words}))]);
  readState();
  const fill = (id, names) => byId(id).replaceChildren(...names.map(n => element('option', {value: n})));
  fill('workloads', asked(['workloads']).answer.workloads.map(w => w.name));
  fill('models', asked(['models']).answer.models.map(m => m.name));
  machines = asked(['machines']).answer.machines;
  fill('machines', machines.map(m => m.name));
  listen();
  update();
}
begin();
