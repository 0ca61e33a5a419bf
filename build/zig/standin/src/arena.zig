//! Context memory: fixed pages of 16 tokens in one reservation. A page costs memory once it is written and gives it back
//! when it is dropped. Pages hold the tokens themselves; the rest stands for keys and values.

const std = @import("std");
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const Token = layout.Token;

pub const page_tokens = 16;
const system_page = 4096;

pub const Arena = struct {
    memory: []align(4096) u8,
    stride: usize,
    count: usize,

    /// Room for `pool` tokens at `bytes_per_token`, rounded up to whole system pages for each 16 tokens.
    pub fn init(pool: usize, bytes_per_token: usize) sys.Failure!Arena {
        const stride = std.mem.alignForward(usize, @max(page_tokens * bytes_per_token, 1), system_page);
        const count = pool / page_tokens;
        return .{ .memory = try sys.reserve(@max(count, 1) * stride), .stride = stride, .count = count };
    }

    fn page(self: Arena, number: usize) []align(4096) u8 {
        return @alignCast(self.memory[number * self.stride ..][0..self.stride]);
    }

    pub fn write(self: Arena, number: usize, start: usize, tokens: []const Token) void {
        const bytes = self.page(number);
        if (start == 0) touch(bytes);
        for (tokens, start..) |token, place| std.mem.writeInt(u16, bytes[place * 2 ..][0..2], token, .little);
    }

    pub fn read(self: Arena, number: usize, place: usize) Token {
        return std.mem.readInt(u16, self.page(number)[place * 2 ..][0..2], .little);
    }

    pub fn drop(self: Arena, number: usize) void {
        sys.release(self.page(number));
    }
};

/// Make every system page of a range cost memory: a zero page does not, so something else is written.
pub fn touch(bytes: []u8) void {
    var at: usize = system_page - 1;
    while (at < bytes.len) : (at += system_page) bytes[at] = 1;
}
