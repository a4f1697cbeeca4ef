// Checks dashboards by the types of board.ts, and that this check notices a misspelled key wherever one may be.
//
//   node check.mjs DIRECTORY
//
// TypeScript refuses unknown keys only where an object is written out. So each board becomes a source file, beside the
// modules that `run` has installed.

import { readdirSync, readFileSync, writeFileSync, mkdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import ts from 'typescript';

const directory = process.argv[2];
const sources = join(import.meta.dirname, 'sources');
rmSync(sources, { recursive: true, force: true });
mkdirSync(sources);

/** A source file with a board of that type; returns its path. */
function source(name, board) {
  const path = join(sources, `${name}.ts`);
  const text = JSON.stringify(board, null, 1);
  writeFileSync(path, `import type { Board } from '../board.js';\nexport const board: Board = ${text};\n`);
  return path;
}

/** The errors in these files, by their names. */
function errors(paths) {
  const { config } = ts.readConfigFile(join(import.meta.dirname, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, import.meta.dirname);
  const program = ts.createProgram(paths, options);
  const found = new Map();
  for (const { file, messageText, start } of ts.getPreEmitDiagnostics(program)) {
    const name = file ? basename(file.fileName, '.ts') : 'the program';
    const line = file ? file.text.split('\n')[file.getLineAndCharacterOfPosition(start).line].trim() : '';
    const message = `${line}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
    found.set(name, [...(found.get(name) ?? []), message]);
  }
  return found;
}

/** The places of all keys, as lists of keys and indices. */
function places(value, at = []) {
  if (value === null || typeof value !== 'object') return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const place = [...at, Array.isArray(value) ? Number(key) : key];
    return [...(Array.isArray(value) ? [] : [place]), ...places(inner, place)];
  });
}

/** The board with another key at a place. */
function misspelled(board, place) {
  const copy = structuredClone(board);
  const parent = place.slice(0, -1).reduce((value, key) => value[key], copy);
  const key = place.at(-1);
  parent[`${key}s`] = parent[key];
  delete parent[key];
  return copy;
}

/** What places of one kind have in common: the type of the panel, and all keys. */
function kind(board, place) {
  const panel = place[0] === 'panels' && place.length > 2 ? board.panels[place[1]].type : '';
  return [panel, ...place.filter((key) => typeof key === 'string')].join('.');
}

const boards = readdirSync(directory)
  .filter((name) => name.endsWith('.json'))
  .map((name) => [basename(name, '.json'), JSON.parse(readFileSync(join(directory, name), 'utf8'))]);
if (boards.length < 4) throw new Error(`only ${boards.length} boards in ${directory}`);

const wrong = errors(boards.map(([name, board]) => source(name, board)));
for (const [name, messages] of wrong) {
  for (const message of messages) console.error(`${name}: ${message}`);
}
if (wrong.size > 0) process.exit(1);

// One place of each kind, in a board with the panel alone that has it.
const seen = new Map();
for (const [, board] of boards) {
  for (const place of places(board)) {
    const name = kind(board, place);
    if (seen.has(name)) continue;
    const panels = place[0] === 'panels' && place.length > 1 ? [board.panels[place[1]]] : [];
    const path = panels.length > 0 ? ['panels', 0, ...place.slice(2)] : place;
    seen.set(name, [misspelled({ ...board, panels }, path), name]);
  }
}
const kinds = [...seen.values()].filter(([, name]) => !name.startsWith('.panels'));
const files = kinds.map(([board], index) => source(`misspelled-${index}`, board));
const noticed = errors(files);
const missed = kinds.filter((_, index) => !noticed.has(`misspelled-${index}`)).map(([, name]) => name);
for (const name of missed) console.error(`a misspelled key is not noticed: ${name}`);
if (missed.length > 0 || kinds.length < 60) {
  console.error(`${kinds.length} misspellings were tried, and ${missed.length} not noticed`);
  process.exit(1);
}
console.log(`${boards.length} boards are as Grafana's types say; each of ${kinds.length} misspelled keys is noticed`);
