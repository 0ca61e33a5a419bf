//! Which page of context memory belongs to whom. Pages of ended requests stay, keyed by the tokens they and all before them
//! hold, so that a conversation that goes on finds them; the longest unused ones go when room is needed.

const std = @import("std");
const sys = @import("sys.zig");
const keys = @import("keys.zig");
const layout = @import("layout.zig");
const page_tokens = @import("arena.zig").page_tokens;
const Token = layout.Token;

const none = std.math.maxInt(u32);
const Page = struct { users: u32 = 0, key: u64 = 0, keyed: bool = false, older: u32 = none, newer: u32 = none };

/// The key of a full page: its tokens after the key of the page before it (`seed` for the first).
pub fn chain(previous: u64, tokens: []const Token) u64 {
    var polynomial: u64 = previous;
    for (tokens) |token| polynomial = keys.push(polynomial, token);
    return keys.mix(polynomial);
}

pub const Book = struct {
    pages: []Page,
    free: std.ArrayList(u32),
    by_key: std.AutoHashMapUnmanaged(u64, u32) = .empty,
    oldest: u32 = none,
    newest: u32 = none,
    /// Pages that no stream uses and that are kept.
    kept: usize = 0,
    kept_limit: usize,
    /// Pages to be dropped on every rank.
    dropped: std.ArrayList(u32) = .empty,

    pub fn init(count: usize, kept_limit: usize) error{OutOfMemory}!Book {
        var book = Book{ .pages = try sys.gpa.alloc(Page, count), .free = .empty, .kept_limit = kept_limit };
        @memset(book.pages, .{});
        try book.free.ensureTotalCapacity(sys.gpa, count);
        var number: u32 = @intCast(count);
        while (number > 0) : (number -= 1) book.free.appendAssumeCapacity(number - 1);
        return book;
    }

    pub fn used(self: *const Book) usize {
        return self.pages.len - self.free.items.len;
    }

    /// Pages that can be taken now.
    pub fn available(self: *const Book) usize {
        return self.free.items.len + self.kept;
    }

    /// The page that holds these tokens, now used once more; null when there is none.
    pub fn share(self: *Book, key: u64) ?u32 {
        const number = self.by_key.get(key) orelse return null;
        if (self.pages[number].users == 0) self.unlink(number);
        self.pages[number].users += 1;
        return number;
    }

    /// A page, at the cost of the longest unused one where none is free. There has to be one available. It is written next, so
    /// a drop that is still to be sent must not come after that.
    pub fn take(self: *Book) error{OutOfMemory}!u32 {
        if (self.free.items.len == 0) try self.evict();
        const number = self.free.pop().?;
        if (std.mem.lastIndexOfScalar(u32, self.dropped.items, number)) |at| _ = self.dropped.swapRemove(at);
        self.pages[number] = .{ .users = 1 };
        return number;
    }

    /// Make a full page findable by its key. A second page with the same tokens stays private.
    pub fn name(self: *Book, number: u32, key: u64) error{OutOfMemory}!void {
        const entry = try self.by_key.getOrPut(sys.gpa, key);
        if (entry.found_existing) return;
        entry.value_ptr.* = number;
        self.pages[number].key = key;
        self.pages[number].keyed = true;
    }

    /// A stream ends its use of a page.
    pub fn put(self: *Book, number: u32) error{OutOfMemory}!void {
        const page = &self.pages[number];
        page.users -= 1;
        if (page.users > 0) return;
        if (!page.keyed) return self.discard(number);
        page.older = self.newest;
        page.newer = none;
        if (self.newest == none) self.oldest = number else self.pages[self.newest].newer = number;
        self.newest = number;
        self.kept += 1;
        while (self.kept > self.kept_limit) try self.evict();
    }

    fn evict(self: *Book) error{OutOfMemory}!void {
        const number = self.oldest;
        self.unlink(number);
        _ = self.by_key.remove(self.pages[number].key);
        try self.discard(number);
    }

    fn discard(self: *Book, number: u32) error{OutOfMemory}!void {
        self.pages[number] = .{};
        self.free.appendAssumeCapacity(number);
        try self.dropped.append(sys.gpa, number);
    }

    fn unlink(self: *Book, number: u32) void {
        const page = self.pages[number];
        if (page.older == none) self.oldest = page.newer else self.pages[page.older].newer = page.newer;
        if (page.newer == none) self.newest = page.older else self.pages[page.newer].older = page.older;
        self.kept -= 1;
    }
};
