// Stepping: what simulate --computes N says after each tile, and what changed since the one before.
'use strict';

const kMostSteps = 5000, kSamples = 48;

const stepper = {words: null, most: 1, tensors: [], timer: 0, generation: 0};

/** Finds out how many tiles the plan's walk computes; of a long one no steps are shown. */
async function prepareSteps(plan, said, resolved) {
  stepper.words = null;
  byId('stepper').hidden = true;
  byId('step-command').textContent = '';
  const whole = said && await ask(['simulate', ...plan, '--computes', String(kMostSteps + 1)], 'walks'), stop = whole?.answer?.stop;
  byId('step-error').textContent = !said ? 'No plan to step through.' : whole.error ||
    (stop.finished ? '' : `The walk computes more than ${kMostSteps.toLocaleString('en')} tiles. Larger tiles make it short enough to step through.`);
  if (byId('step-error').textContent) return;
  const most = stop.computes;
  byId('stepper').hidden = false;
  const buffers = (resolved?.kernels || []).flatMap(k => k.buffers);
  Object.assign(stepper, {words: plan, most: most + 1, tensors: [...new Set([...said.traffic, ...buffers].map(t => t.tensor))].sort()});
  byId('step').max = stepper.most;
  if (Number(state.step) > stepper.most) state.step = '';
}

const stepsAsked = n => ['simulate', ...stepper.words, '--computes', String(n)];
const totalOf = (said, tensor) => (said?.traffic || []).filter(t => t.tensor === tensor).reduce((a, t) => ({
  read: a.read + t.read_bytes, written: a.written + t.written_bytes, hits: a.hits + (t.hits || 0), misses: a.misses + (t.misses || 0)}),
  {read: 0, written: 0, hits: 0, misses: 0});

function showStep() {
  if (!stepper.words) return;
  const n = Math.max(1, Math.min(stepper.most, Number(state.step) || 1));
  byId('step').value = n;
  byId('step').setAttribute('aria-valuetext', `${n} of ${stepper.most - 1}`);
  const words = stepsAsked(n), said = answered('step', words, asked(words));
  if (!said) return;
  const before = n > 1 ? asked(stepsAsked(n - 1)).answer : null, stop = said.stop;
  const text = stop.touched.map(t => t.tensor + boxText(t.box)).join(', ');
  byId('at').textContent = stop.finished ? `End of the walk: ${stop.computes} tiles computed, results written.` :
    `Tile ${stop.computes} of ${stepper.most - 1}: ${stop.operator} on ${text}`;
  for (const item of byId('nest').children) item.toggleAttribute('aria-current', !stop.finished && item.dataset.compute === stop.operator);
  for (const item of byId('nest').querySelectorAll('[aria-current]')) item.setAttribute('aria-current', 'step');
  drawStep(stop, before?.stop);
  table('steps', ['Tensor', 'Hits so far, all levels', 'Misses so far', 'Read so far', 'Written so far', 'In this step'], stepper.tensors.map(t => {
    const now = totalOf(said, t), was = totalOf(before, t);
    const change = ['hits', 'misses', 'read', 'written'].filter(k => now[k] !== was[k]).map(k => `${(now[k] - was[k]).toLocaleString('en')} ${k === 'read' || k === 'written' ? 'B ' : ''}${k}`);
    const named = element('span', {}, element('span', {class: 'chip', style: `background: ${colourOf(stepper.tensors, t)}`}), t);
    return [named, now.hits.toLocaleString('en'), now.misses.toLocaleString('en'), bytes(now.read), bytes(now.written), change.join(', ') || 'nothing'];
  }));
}

function drawStep(stop, before) {
  const buffers = stop.held.flatMap(l => l.buffers || []);
  byId('touched').replaceChildren(...stop.touched.map(t => tensorChart(t.tensor, t.shape, t.box,
    buffers.filter(b => b.tensor === t.tensor).map(b => b.box), colourOf(stepper.tensors, t.tensor))));
  byId('held').replaceChildren(...stop.held.map((level, i) => {
    const place = element('figure');
    if (level.sets) show(place, cacheChart(level, before?.held[i], stepper.tensors), `${level.level}.svg`);
    else if (level.by_tensor) place.textContent = `${level.level}, ${level.lines.toLocaleString('en')} lines: ` +
      Object.entries(level.by_tensor).map(([t, n]) => `${t} ${n.toLocaleString('en')}`).join(', ');
    else place.textContent = `${level.level} holds ` + (level.buffers.map(b => b.tensor + boxText(b.box) + (b.dirty ? ' (to be written)' : '')).join(', ') || 'nothing');
    return place;
  }));
}

function goTo(n) {
  state.step = String(Math.max(1, Math.min(stepper.most, n)));
  keepState();
  showStep();
}

function togglePlay() {
  const on = !stepper.timer;
  byId('play').setAttribute('aria-pressed', on);
  byId('play').textContent = on ? 'Pause' : 'Play';
  clearInterval(stepper.timer);
  stepper.timer = on ? setInterval(() => {
    if (!stepper.words || Number(byId('step').value) >= stepper.most) return togglePlay();
    goTo(Number(byId('step').value) + 1);
  }, 400) : 0;
}

/** What each level holds after each of at most kSamples tiles. */
async function sampleHolding() {
  byId('time').replaceChildren();
  if (!stepper.words) return;
  const count = Math.min(kSamples, stepper.most - 1), samples = [];
  for (let i = 1; i <= count; ++i) {
    const at = Math.max(1, Math.round((stepper.most - 1) * i / count));
    const stop = (await ask(stepsAsked(at), 'walks')).answer?.stop;
    if (!stop) return;
    samples.push({at, levels: stop.held});
  }
  byId('time').replaceChildren(...samples[0].levels.map((level, l) => {
    const software = level.buffers !== undefined, held = samples.map(s => ({at: s.at, held: software ? elementsHeld(s.levels[l].buffers) : s.levels[l].by_tensor}));
    const sums = held.map(s => Object.values(s.held).reduce((a, b) => a + b, 0));
    const place = element('figure');
    show(place, holdingChart(`${level.level}: ${software ? 'elements' : 'lines'} that each tensor holds over time`, held, stepper.tensors,
      software ? Math.max(1, ...sums) : level.lines, `${level.level}, ${software ? 'elements' : 'lines'}`), `${level.level}-over-time.svg`);
    return place;
  }));
}
/** By tensor, of buffers. */
function elementsHeld(buffers) {
  const held = {};
  for (const b of buffers) held[b.tensor] = (held[b.tensor] || 0) + b.box.reduce((n, d) => n * (d[1] - d[0]), 1);
  return held;
}
