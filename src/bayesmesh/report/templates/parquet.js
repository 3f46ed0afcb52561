// Writes a table as a Parquet file: one row group, one page for each column, no compression and no missing values.
// Format: parquet.apache.org/docs/file-format; metadata is Thrift's compact protocol. Numbers are doubles, the rest is UTF-8.
const toParquet = (() => {
  const I32 = 5, I64 = 6, BINARY = 8, LIST = 9, STRUCT = 12, DOUBLE = 5, BYTE_ARRAY = 6, PLAIN = 0, RLE = 3, UTF8 = 0, UNCOMPRESSED = 0;
  const utf8 = (text) => [...new TextEncoder().encode(text)];
  const little = (number) => [0, 8, 16, 24].map((shift) => (number >>> shift) & 255);

  // -- Thrift: every value is its type and its bytes
  const varint = (number) => (number < 128 ? [number] : [(number % 128) + 128, ...varint(Math.floor(number / 128))]);
  const i32 = (number) => [I32, varint(2 * number)];
  const i64 = (number) => [I64, varint(2 * number)];
  const binary = (text) => { const bytes = utf8(text); return [BINARY, [...varint(bytes.length), ...bytes]]; };
  const list = (items) => {
    const size = items.length < 15 ? [items.length * 16 + items[0][0]] : [240 + items[0][0], ...varint(items.length)];
    return [LIST, [...size, ...items.flatMap((item) => item[1])]];
  };
  // Fields by number, ascending.
  const struct = (fields) => {
    let last = 0;
    const bytes = Object.entries(fields).flatMap(([id, [type, content]]) => {
      const head = (id - last) * 16 + type;
      last = id;
      return [head, ...content];
    });
    return [STRUCT, [...bytes, 0]];
  };

  // -- columns
  const doubles = (values) => new Uint8Array(Float64Array.from(values).buffer);
  const texts = (values) => Uint8Array.from(values.flatMap((value) => { const bytes = utf8(value); return [...little(bytes.length), ...bytes]; }));

  // `columns` has a name, and values that are all numbers or all texts.
  return (columns) => {
    const parts = [utf8("PAR1")], numRows = columns[0].values.length;
    let offset = 4;
    const add = (bytes) => { parts.push(bytes); offset += bytes.length; };
    const chunks = columns.map(({name, isNumeric, values}) => {
      const start = offset, content = isNumeric ? doubles(values) : texts(values), size = i32(content.length);
      const about = struct({1: i32(numRows), 2: i32(PLAIN), 3: i32(RLE), 4: i32(RLE)});
      add(struct({1: i32(0), 2: size, 3: size, 5: about})[1]);
      add(content);
      const type = i32(isNumeric ? DOUBLE : BYTE_ARRAY), length = i64(offset - start);
      const described = {1: type, 2: list([i32(PLAIN)]), 3: list([binary(name)]), 4: i32(UNCOMPRESSED), 5: i64(numRows), 6: length, 7: length, 9: i64(start)};
      return struct({2: i64(start), 3: struct(described)});
    });
    const elements = columns.map(({name, isNumeric}) =>
      struct(isNumeric ? {1: i32(DOUBLE), 3: i32(0), 4: binary(name)} : {1: i32(BYTE_ARRAY), 3: i32(0), 4: binary(name), 6: i32(UTF8)}));
    const schema = [struct({4: binary("table"), 5: i32(columns.length)}), ...elements];
    const group = struct({1: list(chunks), 2: i64(offset - 4), 3: i64(numRows)});
    const footer = struct({1: i32(1), 2: list(schema), 3: i64(numRows), 4: list([group]), 6: binary("bayesmesh")})[1];
    parts.push(footer, little(footer.length), utf8("PAR1"));
    return new Blob(parts.map((bytes) => Uint8Array.from(bytes)));
  };
})();
