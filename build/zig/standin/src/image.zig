//! Image input: a PNG as a base64 data URL. Its size decides how many tokens it takes, its mean colour what it is called.

const std = @import("std");
const keys = @import("keys.zig");
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;

/// One token for each patch of so many pixels in square.
const patch = 28;
const most_pixels = 4096;
const signature = "\x89PNG\r\n\x1a\n";
const colours = [_][]const u8{ "black", "red", "green", "yellow", "blue", "magenta", "cyan", "white" };

pub const Image = struct { tokens: usize, digest: u64, colour: []const u8 };

/// An image part of either chat form: `image_url.url`, `image_url` as a string, or `source.data`.
pub fn fromPart(call: *Call, part: std.json.ObjectMap) Failure!Image {
    const inner = part.get("image_url") orelse part.get("source") orelse
        return call.bad("image input: a part is neither text nor an image", .{});
    const url = switch (inner) {
        .string => |given| given,
        .object => |object| try urlOf(call, object),
        else => return call.bad("image input: image_url has to be an object with a url", .{}),
    };
    const marker = ";base64,";
    const at = std.mem.indexOf(u8, url, marker);
    if (!std.mem.startsWith(u8, url, "data:image/") or at == null) {
        return call.bad("image input: only base64 data URLs are taken", .{});
    }
    return decode(call, url[at.? + marker.len ..]);
}

fn urlOf(call: *Call, object: std.json.ObjectMap) Failure![]const u8 {
    if (object.get("url")) |url| if (url == .string) return url.string;
    const data = object.get("data") orelse return call.bad("image input: image_url has no url", .{});
    if (data != .string) return call.bad("image input: the data has to be a string", .{});
    return std.fmt.allocPrint(call.memory, "data:image/png;base64,{s}", .{data.string});
}

fn decode(call: *Call, text: []const u8) Failure!Image {
    const decoder = std.base64.standard.Decoder;
    const length = decoder.calcSizeForSlice(text) catch return call.bad("image input: the base64 text is damaged", .{});
    const bytes = try call.memory.alloc(u8, length);
    decoder.decode(bytes, text) catch return call.bad("image input: the base64 text is damaged", .{});
    if (!std.mem.startsWith(u8, bytes, signature)) return call.bad("image input: only PNG is taken", .{});
    const header = Header.read(bytes) orelse return call.bad("image input: the PNG has no header", .{});
    const size_fits = header.width > 0 and header.height > 0 and header.width <= most_pixels and header.height <= most_pixels;
    if (!size_fits) return call.bad("image input: {d} x {d} pixels, from 1 to {d} each way are taken", .{
        header.width, header.height, most_pixels,
    });
    const colour = try meanColour(call, bytes, header) orelse
        return call.bad("image input: the PNG's pixels cannot be read", .{});
    return .{ .tokens = patches(header.width) * patches(header.height), .digest = keys.fnv1a(bytes), .colour = colour };
}

fn patches(pixels: usize) usize {
    return (pixels + patch - 1) / patch;
}

const Header = struct {
    width: usize,
    height: usize,
    depth: u8,
    kind: u8,
    interlaced: bool,

    fn read(bytes: []const u8) ?Header {
        if (bytes.len < 33 or !std.mem.eql(u8, bytes[12..16], "IHDR")) return null;
        return .{
            .width = std.mem.readInt(u32, bytes[16..20], .big),
            .height = std.mem.readInt(u32, bytes[20..24], .big),
            .depth = bytes[24],
            .kind = bytes[25],
            .interlaced = bytes[28] != 0,
        };
    }

    fn channels(self: Header) ?usize {
        return switch (self.kind) {
            0, 3 => 1,
            2 => 3,
            4 => 2,
            6 => 4,
            else => null,
        };
    }

    fn rowBytes(self: Header) ?usize {
        return (self.width * (self.channels() orelse return null) * self.depth + 7) / 8;
    }
};

/// The nearest of eight colours to the mean of an RGB or RGBA image; "grey-scale or palette" images are called plain.
fn meanColour(call: *Call, bytes: []const u8, header: Header) Failure!?[]const u8 {
    const row_bytes = header.rowBytes() orelse return null;
    const rows = try inflate(call, bytes, (row_bytes + 1) * header.height) orelse return null;
    if (header.depth != 8 or header.kind & 2 == 0 or header.kind == 3 or header.interlaced) return "plain";
    const step = header.channels().?;
    if (!unfilter(rows, row_bytes, step)) return null;
    var sums: [3]u64 = @splat(0);
    for (0..header.height) |row| {
        const pixels = rows[row * (row_bytes + 1) + 1 ..][0..row_bytes];
        for (0..header.width) |column| for (&sums, pixels[column * step ..][0..3]) |*sum, value| {
            sum.* += value;
        };
    }
    var number: usize = 0;
    for (sums, 0..) |sum, channel| {
        const bright = sum >= 128 * header.width * header.height;
        number |= @as(usize, @intFromBool(bright)) << @intCast(channel);
    }
    return colours[number];
}

/// The image's rows, each after its filter byte; null when the data is damaged or short.
fn inflate(call: *Call, bytes: []const u8, wanted: usize) Failure!?[]u8 {
    var data: std.ArrayList(u8) = .empty;
    var at: usize = signature.len;
    while (at + 12 <= bytes.len) {
        const length = std.mem.readInt(u32, bytes[at..][0..4], .big);
        if (length > bytes.len - at - 12) return null;
        const content = bytes[at + 8 ..][0..length];
        const checksum = std.mem.readInt(u32, bytes[at + 8 + length ..][0..4], .big);
        if (std.hash.Crc32.hash(bytes[at + 4 ..][0 .. length + 4]) != checksum) return null;
        if (std.mem.eql(u8, bytes[at + 4 ..][0..4], "IDAT")) try data.appendSlice(call.memory, content);
        at += 12 + length;
    }
    var reader: std.Io.Reader = .fixed(data.items);
    const window = try call.memory.alloc(u8, std.compress.flate.max_window_len);
    var stream: std.compress.flate.Decompress = .init(&reader, .zlib, window);
    const rows = try call.memory.alloc(u8, wanted);
    stream.reader.readSliceAll(rows) catch return null;
    return rows;
}

/// Undo PNG's row filters in place; false for a filter that does not exist.
fn unfilter(rows: []u8, row_bytes: usize, step: usize) bool {
    var at: usize = 0;
    while (at < rows.len) : (at += row_bytes + 1) {
        const filter = rows[at];
        if (filter > 4) return false;
        for (0..row_bytes) |column| {
            const left: u8 = if (column >= step) rows[at + 1 + column - step] else 0;
            const up: u8 = if (at > 0) rows[at - row_bytes + column] else 0;
            const corner: u8 = if (at > 0 and column >= step) rows[at - row_bytes + column - step] else 0;
            rows[at + 1 + column] +%= switch (filter) {
                0 => 0,
                1 => left,
                2 => up,
                3 => @intCast((@as(u16, left) + up) / 2),
                else => paeth(left, up, corner),
            };
        }
    }
    return true;
}

fn paeth(left: u8, up: u8, corner: u8) u8 {
    const guess = @as(i16, left) + up - corner;
    const by_left, const by_up, const by_corner = .{ @abs(guess - left), @abs(guess - up), @abs(guess - corner) };
    if (by_left <= by_up and by_left <= by_corner) return left;
    return if (by_up <= by_corner) up else corner;
}
