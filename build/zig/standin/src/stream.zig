//! One request in a stream slot: its tokens, its pages, and how the next token follows from scores.

const std = @import("std");
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const pages = @import("pages.zig");
const sampler = @import("sampler.zig");
const wire = @import("wire.zig");
const arena = @import("arena.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Arena = arena.Arena;
const page_tokens = arena.page_tokens;
const Token = layout.Token;

pub const prefill_rows = 2048;
/// Tokens a reply may hold: bytes, the end, and what closes a thought or brackets a tool call.
const speakable = [_]Token{ layout.end, layout.end_think };

pub const Stream = struct {
    request: *Request,
    /// Prompt and reply.
    tokens: std.ArrayList(Token) = .empty,
    prompt_len: usize,
    /// How many tokens stand in context memory.
    written: usize = 0,
    pages: std.ArrayList(u32) = .empty,
    /// The key of the last full page written.
    key: u64 = 0,
    /// Streams give their memory to those with a lower number.
    number: u64,
    /// Not before this is the stream's next step due.
    due_ns: u64 = 0,
    thinking: bool,
    drafts: [wire.max_drafts]Token = undefined,
    draft_count: usize = 0,

    /// Pages that a request can need at most.
    pub fn pagesFor(wanted: request_.Ask) usize {
        return pageCount(wanted.prompt.len + wanted.max_tokens);
    }

    pub fn start(request: *Request, number: u64, book: *pages.Book) error{OutOfMemory}!Stream {
        var stream = Stream{
            .request = request,
            .prompt_len = request.ask.prompt.len,
            .number = number,
            .thinking = request.ask.thinking,
        };
        try stream.tokens.appendSlice(sys.gpa, request.ask.prompt);
        try stream.recall(book);
        request.counts.cached = stream.written;
        request.counts.started_ns = sys.nowNs();
        return stream;
    }

    /// Take what the book keeps of the stream's tokens, but not all: the last one has to be looked at anew.
    pub fn recall(self: *Stream, book: *pages.Book) error{OutOfMemory}!void {
        self.key = self.request.ask.image_seed;
        while (self.written + page_tokens < self.tokens.items.len) {
            const key = pages.chain(self.key, self.tokens.items[self.written..][0..page_tokens]);
            try self.pages.append(sys.gpa, book.share(key) orelse return);
            self.written += page_tokens;
            self.key = key;
        }
    }

    /// Give up context memory, to read the same tokens again later.
    pub fn yield(self: *Stream, book: *pages.Book) error{OutOfMemory}!void {
        while (self.pages.pop()) |page| try book.put(page);
        self.written = 0;
    }

    pub fn finish(self: *Stream, book: *pages.Book) error{OutOfMemory}!void {
        try self.yield(book);
        self.pages.deinit(sys.gpa);
        self.tokens.deinit(sys.gpa);
        self.request.release();
    }

    /// Pages that the next write of up to `limit` tokens takes.
    pub fn pagesToWrite(self: *const Stream, limit: usize) usize {
        const to = @min(self.tokens.items.len, self.written + limit);
        return pageCount(to) - self.pages.items.len;
    }

    pub fn prefilled(self: *const Stream) bool {
        return self.written == self.tokens.items.len;
    }

    /// Write up to `limit` tokens that are not in context memory yet, here and in the frame. How many it wrote.
    pub fn write(self: *Stream, limit: usize, book: *pages.Book, local: Arena, frame: *wire.Builder) error{OutOfMemory}!usize {
        const to = @min(self.tokens.items.len, self.written + limit);
        const from = self.written;
        while (self.written < to) {
            const start_ = self.written % page_tokens;
            if (start_ == 0) {
                try self.pages.append(sys.gpa, try book.take());
            }
            const page = self.pages.items[self.written / page_tokens];
            const count = @min(page_tokens - start_, to - self.written);
            const tokens = self.tokens.items[self.written..][0..count];
            local.write(page, start_, tokens);
            frame.write(.{ .page = page, .start = @intCast(start_), .tokens = tokens });
            self.written += count;
            if (self.written % page_tokens == 0) try self.namePage(page, book);
        }
        return to - from;
    }

    fn namePage(self: *Stream, page: u32, book: *pages.Book) error{OutOfMemory}!void {
        self.key = pages.chain(self.key, self.tokens.items[self.written - page_tokens ..][0..page_tokens]);
        try book.name(page, self.key);
    }

    /// Ask every rank for the scores after the last token and after each draft.
    pub fn ask(self: *const Stream, frame: *wire.Builder) void {
        const position = self.tokens.items.len;
        const first_page = (position -| layout.window) / page_tokens;
        frame.score(.{
            .position = @intCast(position),
            .pages = self.pages.items[first_page .. (position - 1) / page_tokens + 1],
            .topic = self.request.ask.topic,
            .since = @intCast(self.since()),
            .drafts = self.drafts[0..self.draft_count],
        });
    }

    /// Tokens since the reply's assistant token, itself included; 0 outside a chat.
    pub fn since(self: *const Stream) usize {
        return if (self.request.ask.assistant_at) |at| self.tokens.items.len - at else 0;
    }

    pub fn replyLength(self: *const Stream) usize {
        return self.tokens.items.len - self.prompt_len;
    }

    /// The next token, given every rank's scores for this position. Changes `scores`.
    pub fn choose(self: *const Stream, scores: *[layout.vocab]u32) Token {
        const ask_ = &self.request.ask;
        const place = self.replyLength();
        if (ask_.forced.len > 0) return if (place < ask_.forced.len) ask_.forced[place] else layout.end;
        if (self.thinking) if (ask_.thinking_budget) |budget| {
            if (self.request.counts.reasoning >= budget) return layout.end_think;
        };
        for (256..layout.vocab) |token| if (std.mem.indexOfScalar(Token, &speakable, @intCast(token)) == null) {
            scores[token] = 0;
        };
        scores[if (self.thinking) layout.end else layout.end_think] = 0;
        if (ask_.ignore_end or place < ask_.min_tokens) scores[layout.end] = 0;
        sampler.discourageRepeats(scores, self.tokens.items[self.prompt_len..]);
        return sampler.pick(scores, ask_.sampling, self.tokens.items.len);
    }

    /// Take a chosen token into the reply; how the reply ends with it, if it does.
    pub fn accept(self: *Stream, token: Token) error{OutOfMemory}!?request_.Finish {
        const counts = &self.request.counts;
        if (token == layout.end) return if (self.request.ask.forced.len > 0) .tool_calls else .stop;
        try self.tokens.append(sys.gpa, token);
        if (self.thinking) {
            counts.reasoning += 1;
            if (token == layout.end_think) self.thinking = false;
        }
        if (self.stopped()) return .stop;
        return if (self.replyLength() >= self.request.ask.max_tokens) .length else null;
    }

    /// Whether the reply ends in one of the client's stop texts.
    fn stopped(self: *const Stream) bool {
        if (self.thinking) return false;
        const reply = self.tokens.items[self.prompt_len..];
        for (self.request.ask.stops) |stop| if (endsWith(reply, stop)) return true;
        return false;
    }
};

fn endsWith(reply: []const Token, text: []const u8) bool {
    if (text.len == 0 or reply.len < text.len) return false;
    for (reply[reply.len - text.len ..], text) |token, byte| if (token != byte) return false;
    return true;
}

pub fn pageCount(tokens: usize) usize {
    return (tokens + page_tokens - 1) / page_tokens;
}
