// Runs the engine: in the page, in a worker beside it, or in a test. Nothing is read or fetched at run time.
'use strict';

/** Everything an engine needs; a worker gets this function as text. */
function engineCode() {
  const kNoFile = 44, kBadDescriptor = 8;

  /** What wasm32-wasi asks of its host. There are no files, and what is written to the standard streams is dropped. */
  function host(memory) {
    const view = () => new DataView(memory().buffer);
    const nothing = () => 0;
    const known = {
      fd_write(fd, vectors, count, written) {
        let bytes = 0;
        for (let i = 0; i < count; ++i) bytes += view().getUint32(vectors + 8 * i + 4, true);
        view().setUint32(written, bytes, true);
        return 0;
      },
      clock_time_get(id, precision, out) {
        view().setBigUint64(out, BigInt(Math.round(performance.now() * 1e6)), true);
        return 0;
      },
      clock_res_get(id, out) { view().setBigUint64(out, 1000n, true); return 0; },
      environ_sizes_get(count, size) {
        view().setUint32(count, 0, true);
        view().setUint32(size, 0, true);
        return 0;
      },
      environ_get: nothing,
      random_get(at, size) { new Uint8Array(memory().buffer, at, size).fill(7); return 0; },
      fd_prestat_get: () => kBadDescriptor,
      path_open: () => kNoFile,
      path_filestat_get: () => kNoFile,
      proc_exit(status) { throw new Error('the engine ended with status ' + status); },
    };
    return new Proxy(known, {get: (all, name) => all[name] || (() => kBadDescriptor), has: () => true});
  }

  /** Of the module, compiled or its bytes: a function from a question, {words: the command line's, subject: the text of the file that
   * it names, if any}, to {status, answer or error}. Its member `text` gives the same as it was written. */
  async function start(bytes) {
    let memory = null;
    const module = bytes instanceof WebAssembly.Module ? bytes : await WebAssembly.compile(bytes);
    const calls = host(() => memory);
    const imports = {};
    for (const {module: from, name} of WebAssembly.Module.imports(module))
      (imports[from] ||= {})[name] = calls[name];
    const {exports} = await WebAssembly.instantiate(module, imports);
    memory = exports.memory;
    exports._initialize();
    const said = question => {
      const text = new TextEncoder().encode(JSON.stringify(question));
      const at = exports.room(text.length);
      new Uint8Array(memory.buffer, at, text.length).set(text);
      const from = exports.ask(at, text.length);
      const all = new Uint8Array(memory.buffer);
      return new TextDecoder().decode(all.subarray(from, all.indexOf(0, from)));
    };
    return Object.assign(question => JSON.parse(said(question)), {text: said});
  }
  return {start};
}
const TwEngine = engineCode();

/** An engine in a worker of its own: the page goes on while it works, and what nobody waits for any more is given up. */
class TwLane {
  constructor(module) {
    this.module = module;
    this.code = URL.createObjectURL(new Blob([`const TwEngine = (${engineCode})(); let engine;
      onmessage = async ({data: {module, question}}) => {
        if (module) return void (engine = TwEngine.start(module));
        try { postMessage((await engine).text(question)); } catch (e) { postMessage({status: 1, error: 'The engine stopped (' + e.message + ').'}); }
      };`], {type: 'text/javascript'}));
    this.begin();
  }
  begin() {
    this.worker?.terminate();
    this.waiting = [];  // answers come in the order of the questions
    this.worker = new Worker(this.code);
    this.worker.postMessage({module: this.module});
    this.worker.onmessage = ({data: said}) => {  // a text is passed on quicker than what it stands for
      const data = typeof said === 'string' ? JSON.parse(said) : said;
      const reply = this.waiting.shift();
      if (data.status === 1) this.begin();  // what a stopped engine would say next is not to be relied on
      reply(data);
    };
  }
  ask(question) {
    return new Promise(reply => {
      this.waiting.push(reply);
      this.worker.postMessage({question});
    });
  }
  /** Whoever waits hears nothing more. */
  abandon() {
    if (this.waiting.length) this.begin();
  }
}
if (typeof module !== 'undefined') module.exports = TwEngine;
