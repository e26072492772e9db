// Runs the engine: the page's or a test's. Nothing is read or fetched at run time.
'use strict';

const TwEngine = (() => {
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

  /** Of the module's bytes: a function from a question, {words: the command line's, subject: the text of the file that
   * it names, if any}, to {status, answer or error}. */
  async function start(bytes) {
    let memory = null;
    const module = await WebAssembly.compile(bytes);
    const calls = host(() => memory);
    const imports = {};
    for (const {module: from, name} of WebAssembly.Module.imports(module))
      (imports[from] ||= {})[name] = calls[name];
    const {exports} = await WebAssembly.instantiate(module, imports);
    memory = exports.memory;
    exports._initialize();
    return question => {
      const text = new TextEncoder().encode(JSON.stringify(question));
      const at = exports.room(text.length);
      new Uint8Array(memory.buffer, at, text.length).set(text);
      const from = exports.ask(at, text.length);
      const all = new Uint8Array(memory.buffer);
      return JSON.parse(new TextDecoder().decode(all.subarray(from, all.indexOf(0, from))));
    };
  }
  return {start};
})();
if (typeof module !== 'undefined') module.exports = TwEngine;
