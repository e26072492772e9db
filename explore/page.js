// The page: a command line from its fields, the answers as tables and drawings. Its state is the address's hash.
'use strict';

const kFields = ['workload', 'machine', 'capacity', 'model', 'order', 'tiles'];
const byId = id => document.getElementById(id);
const bytes = n => n.toLocaleString('en') + ' B';
let ask = null;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The shared options, as the command takes them. */
function options(...names) {
  const words = [];
  for (const name of names)
    if (byId(name).value.trim()) words.push('--' + name, byId(name).value.trim());
  return words;
}
const quoted = word => /^[\w:=,.\/-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";
const line = words => 'tilewright ' + words.map(quoted).join(' ');

function table(into, heads, rows) {
  const head = element('tr', {}, ...heads.map(h => element('th', {scope: 'col'}, h)));
  const body = rows.map(r => element('tr', {}, ...r.map((c, i) =>
    element(i === 0 ? 'th' : 'td', i === 0 ? {scope: 'row'} : {}, c))));
  byId(into).replaceChildren(element('thead', {}, head), element('tbody', {}, ...body));
}

/** An answer's document, its command line shown; null and its reason in `into` where there is none. */
function answered(view, words) {
  byId(view + '-command').textContent = line(words);
  const said = ask(words);
  const why = said.error || (said.status ? said.answer.reason : '');
  byId(view + '-error').textContent = why;
  return why ? null : said.answer;
}

function showOrders(subject, common) {
  const said = answered('orders', ['explain', subject, ...common, ...options('model', 'tiles')]);
  const orders = said ? [...(said.orders || [])] : [];
  orders.sort((a, b) => (b.feasible - a.feasible) || a.volume_bytes - b.volume_bytes);
  table('orders', ['Order', 'Bytes moved', 'Tiles', 'Verdict'], orders.map(o => {
    const pick = element('button', {type: 'button'}, o.order);
    pick.onclick = () => { byId('order').value = o.order; changed(); };
    return [pick, o.volume_bytes === undefined ? '' : bytes(o.volume_bytes),
      o.tiles ? Object.entries(o.tiles).map(t => t.join('=')).join(' ') : '',
      o.feasible ? 'feasible' : o.infeasible_reason || o.reason || 'not feasible'];
  }));
  if (said && !said.orders) byId('orders-error').textContent = 'This model ranks no orders.';
  return orders.find(o => o.order === byId('order').value.trim()) || orders[0];
}

function showPlan(subject, common, order) {
  const own = byId('order').value.trim() ? options('order', 'tiles', 'model') :
    order ? ['--order', order.order, ...options('tiles', 'model')] : options('model');
  const plan = [subject, ...common, ...own];
  const resolved = answered('tree', ['explain', ...plan, '--resolved']);
  byId('tree').textContent = resolved ? resolved.trees.join('\n') : '';
  const said = answered('simulated', ['simulate', ...plan]);
  // exact prices what is said in a notation, or the one kernel of a model's plan with its pins.
  const kernels = resolved?.resolved.kernels || [];
  const pins = Object.entries(kernels[0]?.pins || {}).filter(p => typeof p[1] === 'string');
  const words = own.includes('--order') ? [...(order ? ['--order', order.order] : options('order')), ...options('tiles')] :
    kernels.length === 1 ? ['--tree', kernels[0].tree, ...pins.flatMap(p => ['--pin', p.join('=')])] : null;
  const exact = said && words ? ask(['predict', subject, ...common, ...words, '--model', 'exact']) : {};
  const predicted = new Map();
  for (const t of exact.answer?.traffic || [])
    predicted.set(t.tensor + ' ' + t.boundary, t.read_bytes + t.written_bytes);
  const decided = order?.tensors || {};
  table('traffic', ['Tensor', 'Boundary', 'Read', 'Written', 'Predicted by exact', 'Decided by loop'],
    (said?.traffic || []).map(t => [t.tensor, t.boundary, bytes(t.read_bytes), bytes(t.written_bytes),
      predicted.has(t.tensor + ' ' + t.boundary) ? bytes(predicted.get(t.tensor + ' ' + t.boundary)) : 'not available',
      decided[t.tensor]?.decided_by || '']));
  return said;
}

function update() {
  const began = performance.now();
  const subject = byId('workload').value.trim();
  const common = options('machine', 'capacity');
  const order = showOrders(subject, common);
  const said = showPlan(subject, common, order);
  const total = (said?.traffic || []).reduce((sum, t) => sum + t.read_bytes + t.written_bytes, 0);
  byId('status').textContent = said ? 'Simulated: ' + bytes(total) + ' cross all boundaries.' : 'No plan to simulate.';
  byId('took').textContent = Math.round(performance.now() - began) + ' ms';
}

let due = 0;
function changed() {
  location.replace('#' + new URLSearchParams(kFields.map(f => [f, byId(f).value]).filter(f => f[1])));
  clearTimeout(due);
  due = setTimeout(update, 150);
}

async function begin() {
  const coded = Uint8Array.from(atob(TW_MODULE), c => c.charCodeAt(0));
  const plain = new Blob([coded]).stream().pipeThrough(new DecompressionStream('gzip'));
  const engine = await TwEngine.start(await new Response(plain).arrayBuffer());
  ask = words => {
    try {
      return engine(words);
    } catch (e) {
      return {status: 1, error: 'The engine stopped (' + e.message + '). Load the page again.'};
    }
  };
  for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
    if (kFields.includes(name)) byId(name).value = value;
  const fill = (id, names) => byId(id).replaceChildren(...names.map(n => element('option', {value: n})));
  fill('workloads', ask(['workloads']).answer.workloads.map(w => w.name));
  fill('models', ask(['models']).answer.models.map(m => m.name));
  for (const f of kFields) byId(f).addEventListener('input', changed);
  update();
  document.body.dataset.ready = 'yes';
}
begin();
