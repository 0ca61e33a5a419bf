//! JSON by hand over a Writer: the few shapes this tool prints, and file names that are any bytes.

const std = @import("std");
const Writer = std.Io.Writer;

/// A JSON string of any bytes. What is not UTF-8 becomes a lone surrogate U+DC80..U+DCFF per byte, which Python's
/// `json.loads` followed by `os.fsencode` turns back into the same bytes (PEP 383).
pub fn string(out: *Writer, bytes: []const u8) Writer.Error!void {
    try out.writeByte('"');
    var at: usize = 0;
    while (at < bytes.len) {
        const length = sequenceLength(bytes[at..]);
        if (length == 0) {
            try out.print("\\udc{x:0>2}", .{bytes[at]});
            at += 1;
        } else if (length > 1) {
            try out.writeAll(bytes[at..][0..length]);
            at += length;
        } else {
            try ascii(out, bytes[at]);
            at += 1;
        }
    }
    try out.writeByte('"');
}

/// Bytes of the UTF-8 character that starts here; 0 when there is none.
fn sequenceLength(bytes: []const u8) usize {
    const length = std.unicode.utf8ByteSequenceLength(bytes[0]) catch return 0;
    if (length > bytes.len) return 0;
    _ = std.unicode.utf8Decode(bytes[0..length]) catch return 0;
    return length;
}

fn ascii(out: *Writer, byte: u8) Writer.Error!void {
    switch (byte) {
        '"' => try out.writeAll("\\\""),
        '\\' => try out.writeAll("\\\\"),
        '\n' => try out.writeAll("\\n"),
        '\t' => try out.writeAll("\\t"),
        0...8, 11...31, 127 => try out.print("\\u{x:0>4}", .{byte}),
        else => try out.writeByte(byte),
    }
}

test "names of any bytes" {
    var buffer: [128]u8 = undefined;
    var out: Writer = .fixed(&buffer);
    try string(&out, "a\"\\\n\x01\u{e9}\xff\xe2\x82z\xed\xa0\x80");
    const expected = "\"a\\\"\\\\\\n\\u0001\u{e9}\\udcff\\udce2\\udc82z\\udced\\udca0\\udc80\"";
    try std.testing.expectEqualStrings(expected, out.buffered());
}
