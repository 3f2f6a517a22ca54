// Columns out of the page: base64, deflated, byte planes; see pack.py.

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflate(name) {
  const holder = document.getElementById(`data-${name}`);
  const packed = bytesOf(holder.textContent);
  holder.remove(); // it will not be needed again, and is large
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpack(name, about) {
  const { rows, columns } = about[name];
  const bytes = await inflate(name);
  const table = { rows, words: {} };
  let at = 0;
  for (const column of columns) {
    table[column.name] = readColumn(bytes, at, rows, column);
    if (column.words) table.words[column.name] = column.words;
    at += rows * column.width;
  }
  return table;
}

function readColumn(bytes, at, rows, { width, delta }) {
  if (width === 1 && !delta) return bytes.slice(at, at + rows);
  const values = delta ? new Int32Array(rows) : width === 2 ? new Uint16Array(rows) : new Uint32Array(rows);
  const second = at + rows, third = second + rows, fourth = third + rows;
  for (let i = 0, last = 0; i < rows; i++) {
    let value = bytes[at + i];
    if (width > 1) value |= bytes[second + i] << 8;
    if (width > 2) value |= (bytes[third + i] << 16) | (bytes[fourth + i] << 24);
    if (delta) {
      last = (last + ((value >>> 1) ^ -(value & 1))) | 0;
      value = last;
    }
    values[i] = value;
  }
  return values;
}
