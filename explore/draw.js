// Drawings: SVG elements with a name for who cannot see them, and a button that saves each as a file.
'use strict';

const kColours = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442', '#999999'];
const kInk = '#1a1a1a';

/** One colour a tensor, by its place among those named. */
const colourOf = (names, name) => kColours[names.indexOf(name) % kColours.length] || kColours[7];

function svgPart(name, attributes = {}, text = '') {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

/** An empty drawing, in pixels; `label` says what it shows. */
function drawing(width, height, label) {
  const made = svgPart('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label,
    xmlns: 'http://www.w3.org/2000/svg', 'font-family': 'sans-serif', 'font-size': 12});
  made.append(svgPart('rect', {width, height, fill: '#fff'}));
  return made;
}
const rect = (x, y, width, height, more) => svgPart('rect', {x, y, width: Math.max(0, width), height: Math.max(0, height), ...more});
const words = (x, y, text, more = {}) => svgPart('text', {x, y, fill: kInk, ...more}, text);
const line = (x1, y1, x2, y2, more = {}) => svgPart('line', {x1, y1, x2, y2, stroke: '#888', ...more});

/** A drawing in its place, with the button that saves it. */
function show(place, drawn, file) {
  if (!drawn) return place.replaceChildren();
  const save = document.createElement('button');
  save.type = 'button';
  save.textContent = 'Save ' + file;
  save.onclick = () => {
    const to = document.createElement('a');
    to.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(drawn)], {type: 'image/svg+xml'}));
    to.download = file;
    to.click();
    setTimeout(() => URL.revokeObjectURL(to.href), 1000);
  };
  place.replaceChildren(drawn, save);
}

/** Three digits and a prefix, as the command has them: 1536 is "1.5 KiB". */
function short(bytes) {
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]])
    if (bytes >= size) return Number((bytes / size).toPrecision(3)) + ' ' + unit;
  return bytes + ' B';
}

/** Horizontal bars in groups. groups: [{name, bars: [{label, colour, value}]}] in bytes. */
function barChart(label, groups) {
  const left = 110, wide = 560, tall = 16;
  const most = Math.max(1, ...groups.flatMap(g => g.bars.map(b => b.value)));
  const rows = groups.reduce((n, g) => n + g.bars.length, 0);
  const made = drawing(left + wide + 190, rows * tall + groups.length * 8 + 8, label);
  let y = 8;
  for (const g of groups) {
    made.append(words(left - 8, y + 12, g.name, {'text-anchor': 'end'}));
    for (const b of g.bars) {
      const w = wide * b.value / most;
      made.append(rect(left, y, w, tall - 3, {fill: b.colour}), words(left + w + 5, y + 11, `${short(b.value)} ${b.label}`));
      y += tall;
    }
    y += 8;
  }
  return made;
}

/** Logarithmic axes with lines at powers of two; x and y: [least, most]. Returns the drawing and where a point lies. */
function logAxes(label, xs, ys, xTitle, yTitle) {
  const left = 78, top = 14, wide = 560, tall = 300, made = drawing(left + wide + 16, top + tall + 48, label);
  const scale = ([lo, hi], from, to) => v => from + (to - from) * (Math.log(v) - Math.log(lo)) / (Math.log(hi) - Math.log(lo) || 1);
  const x = scale(xs, left, left + wide), y = scale(ys, top + tall, top);
  for (const [of, [lo, hi]] of [['x', xs], ['y', ys]]) {
    const each = Math.max(1, Math.round(Math.log2(hi / lo) / 6));
    for (let e = Math.ceil(Math.log2(lo) / each) * each; 2 ** e <= hi; e += each) {
      const v = 2 ** e;
      if (of === 'x') made.append(line(x(v), top, x(v), top + tall, {stroke: '#ddd'}), words(x(v), top + tall + 16, short(v), {'text-anchor': 'middle'}));
      else made.append(line(left, y(v), left + wide, y(v), {stroke: '#ddd'}), words(left - 6, y(v) + 4, short(v), {'text-anchor': 'end'}));
    }
  }
  made.append(rect(left, top, wide, tall, {fill: 'none', stroke: '#888'}),
    words(left + wide / 2, top + tall + 38, xTitle, {'text-anchor': 'middle'}),
    words(14, top + tall / 2, yTitle, {'text-anchor': 'middle', transform: `rotate(-90 14 ${top + tall / 2})`}));
  return {made, x, y, left, top, wide, tall};
}

/** The least bytes by capacity, as steps; `plan` {bytes, memory} and `capacity` are marked where they are known. */
function curveChart(curve, plan, capacity) {
  const series = [['unfused, attainable', p => p.unfused?.attainable_bytes, '#d55e00', ''],
    ['fused, attainable', p => p.fused?.attainable_bytes, '#0072b2', ''],
    ['fused, proven bound', p => p.fused?.proven_bytes, '#0072b2', '5 4']];
  const values = curve.flatMap(p => series.map(s => s[1](p)).filter(v => v > 0));
  if (plan) values.push(plan.bytes);
  const sizes = [...curve.map(p => p.buffer_bytes), ...(plan ? [plan.memory] : []), ...(capacity ? [capacity] : [])].filter(v => v > 0);
  const xs = [Math.min(...sizes), Math.max(...sizes) * 1.5], ys = [Math.min(...values) * .8, Math.max(...values) * 1.3];
  const {made, x, y, left, top, wide, tall} = logAxes('Least bytes moved by capacity, fused and unfused, with the plan marked',
    xs, ys, 'bytes of on-chip memory', 'bytes moved from and to home');
  if (capacity) made.append(line(x(capacity), top, x(capacity), top + tall, {stroke: kInk, 'stroke-dasharray': '2 3'}),
    words(x(capacity), top - 3, 'capacity', {'text-anchor': 'middle'}));
  made.append(rect(left + wide - 198, top + 4, 192, 56, {fill: '#fff', 'fill-opacity': .9}));
  series.forEach(([name, of, stroke, dash], i) => {
    let path = '';
    for (const p of curve)
      if (of(p) > 0) path += path ? `H${x(p.buffer_bytes)}V${y(of(p))}` : `M${x(p.buffer_bytes)} ${y(of(p))}`;
    if (!path) return;
    made.append(svgPart('path', {d: path + `H${left + wide}`, fill: 'none', stroke, 'stroke-width': 2, 'stroke-dasharray': dash}),
      line(left + wide - 190, top + 16 + 18 * i, left + wide - 160, top + 16 + 18 * i, {stroke, 'stroke-width': 2, 'stroke-dasharray': dash}),
      words(left + wide - 154, top + 20 + 18 * i, name));
  });
  if (plan && plan.memory > 0) made.append(svgPart('circle', {cx: x(plan.memory), cy: y(plan.bytes), r: 6, fill: '#e69f00', stroke: kInk}),
    words(x(plan.memory) + (x(plan.memory) > left + wide - 80 ? -10 : 10), y(plan.bytes) - 8, 'this plan',
      {'text-anchor': x(plan.memory) > left + wide - 80 ? 'end' : 'start', stroke: '#fff', 'stroke-width': 4, 'paint-order': 'stroke'}));
  return made;
}

/** Who holds a level over time: samples [{at, held: {tensor: amount}}], stacked; `room`: all that there is. */
function holdingChart(label, samples, tensors, room, unit) {
  const left = 70, top = 12, wide = 460, tall = 150, made = drawing(left + wide + 100, top + tall + 40, label);
  const x = i => left + wide * i / samples.length, y = v => top + tall - tall * v / room;
  samples.forEach((s, i) => {
    let below = 0;
    for (const t of tensors) {
      const n = s.held[t] || 0;
      if (n) made.append(rect(x(i), y(below + n), wide / samples.length + .3, tall * n / room, {fill: colourOf(tensors, t)}));
      below += n;
    }
  });
  tensors.forEach((t, i) => made.append(rect(left + wide + 10, top + 16 * i, 11, 11, {fill: colourOf(tensors, t)}), words(left + wide + 26, top + 10 + 16 * i, t)));
  made.append(rect(left, top, wide, tall, {fill: 'none', stroke: '#888'}), words(left - 5, top + 10, room.toLocaleString('en'), {'text-anchor': 'end'}),
    words(left - 5, top + tall, '0', {'text-anchor': 'end'}), words(14, top + tall / 2, unit, {'text-anchor': 'middle', transform: `rotate(-90 14 ${top + tall / 2})`}),
    words(left, top + tall + 15, '1'), words(left + wide, top + tall + 15, samples.at(-1).at.toLocaleString('en'), {'text-anchor': 'end'}),
    words(left + wide / 2, top + tall + 32, 'tiles computed', {'text-anchor': 'middle'}));
  return made;
}

/** A tensor as a rectangle, the box that a compute touched filled, boxes that are held outlined. Of more than two dimensions the last two. */
function tensorChart(name, shape, box, held, colour) {
  const two = a => a.length > 1 ? a.slice(-2) : a.length ? [undefined, a[0]] : [undefined, undefined];
  const [rows, columns] = two(shape).map(n => n || 1), scale = 110 / Math.max(rows, columns, 1);
  const w = Math.max(8, columns * scale), h = Math.max(8, rows * scale);
  const made = drawing(w + 22, h + 38, `${name}, ${shape.join(' by ') || 'scalar'}: touched ${boxText(box)}`);
  const place = (b, more) => {
    const [r, c] = two(b).map((d, i) => d || [0, i ? columns : rows]);
    return rect(11 + w * c[0] / columns, 20 + h * r[0] / rows, w * (c[1] - c[0]) / columns, h * (r[1] - r[0]) / rows, more);
  };
  made.append(words(11, 13, name, {'font-weight': 600}), rect(11, 20, w, h, {fill: '#f3f3f3', stroke: '#888'}));
  made.append(place(box, {fill: colour}));
  for (const b of held) made.append(place(b, {fill: 'none', stroke: kInk, 'stroke-width': 2}));
  made.append(words(11, h + 34, shape.join(' x '), {'font-size': 10}));
  return made;
}
const boxText = box => '[' + box.map(d => d.join(':')).join(', ') + ']';

/** A cache, a row a set and a column a way; a dot is dirty, a frame new since `before`. */
function cacheChart(level, before, tensors) {
  const ways = Math.max(1, ...level.sets.map(s => s.length), level.lines / level.sets.length);
  const turned = ways > level.sets.length, cell = level.lines > 256 ? 8 : 14;
  const [down, across] = turned ? [ways, level.sets.length] : [level.sets.length, ways];
  const made = drawing(Math.max(across * cell + 12, 190), down * cell + 28,
    `${level.level}: lines by set and way. ` + Object.entries(level.by_tensor).map(([t, n]) => `${t} ${n}`).join(', '));
  made.append(words(6, 13, `${level.level}: ${level.sets.length} sets, ${ways} ways`, {'font-weight': 600}));
  level.sets.forEach((set, s) => {
    for (let w = 0; w < ways; ++w) {
      const [x, y] = turned ? [6 + s * cell, 20 + w * cell] : [6 + w * cell, 20 + s * cell], held = set[w], was = before?.sets?.[s]?.[w];
      made.append(rect(x, y, cell - 1, cell - 1, {fill: held ? colourOf(tensors, held.tensor) : '#f3f3f3', stroke: held && before && held.tensor !== was?.tensor ? kInk : 'none'}));
      if (held?.dirty) made.append(svgPart('circle', {cx: x + cell / 2 - .5, cy: y + cell / 2 - .5, r: 2, fill: kInk}));
    }
  });
  return made;
}
