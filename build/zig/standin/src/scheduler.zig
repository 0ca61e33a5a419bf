//! Rounds: every live stream takes one step in each, prompts in chunks of 2048 rows, replies by up to drafts + 1 tokens. One
//! frame to every rank, one answer from each. Runs on a thread of its own; clients only see their request objects.

const std = @import("std");
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const wire = @import("wire.zig");
const draft = @import("draft.zig");
const pages = @import("pages.zig");
const report = @import("report.zig");
const Arena = @import("arena.zig").Arena;
const board_ = @import("board.zig");
const Board = board_.Board;
const Knobs = @import("knobs.zig").Knobs;
const Link = @import("link.zig").Link;
const Model = @import("model.zig").Model;
const request_ = @import("request.zig");
const Request = request_.Request;
const stream_ = @import("stream.zig");
const Stream = stream_.Stream;
const Token = layout.Token;

/// How long a stream without memory waits before it asks again.
const yield_ns = 5 * std.time.ns_per_ms;
const idle_ns = 3600 * std.time.ns_per_s;

pub const Scheduler = struct {
    board: *Board,
    model: *const Model,
    link: *Link,
    arena: Arena,
    book: pages.Book,
    knobs: Knobs,
    parallel: usize,
    drafts: usize,
    totals_dialect: bool,
    streams: [board_.max_streams]?Stream = @splat(null),
    frame: wire.Builder = .{},
    scores: std.ArrayList(u32) = .empty,
    started: u64 = 0,

    /// Serve until the board says stop; then end every rank.
    pub fn run(self: *Scheduler) error{OutOfMemory}!void {
        while (true) {
            const seen = self.board.work.read();
            if (self.stopping()) break;
            try self.dropCancelled();
            try self.admit();
            self.dropPages();
            const due = self.nextDue();
            if (due > sys.nowNs() and self.frame.isEmpty()) {
                self.board.work.wait(seen, @min(due - sys.nowNs(), idle_ns));
                continue;
            }
            self.round() catch |problem| switch (problem) {
                error.PeerDown => try self.peerDown(),
                error.OutOfMemory => return error.OutOfMemory,
            };
        }
        try self.endAll("the server is stopping");
        self.frame.clear();
        self.frame.end();
        if (self.link.lost == null) self.link.send(self.frame.bytes.items) catch {};
    }

    fn stopping(self: *Scheduler) bool {
        self.board.lock.lock();
        defer self.board.lock.unlock();
        return self.board.stopping;
    }

    fn dropCancelled(self: *Scheduler) error{OutOfMemory}!void {
        for (0..self.parallel) |slot| if (self.streams[slot]) |*stream| {
            if (stream.request.cancelled.load(.acquire)) try self.retire(slot, .{ .failed = report.client_left });
        };
        self.board.lock.lock();
        defer self.board.lock.unlock();
        var at: usize = 0;
        while (at < self.board.queue.items.len) {
            const request = self.board.queue.items[at];
            if (!request.cancelled.load(.acquire)) {
                at += 1;
                continue;
            }
            _ = self.board.queue.orderedRemove(at);
            self.board.totals.disconnected += 1;
            report.ended(request, 0, report.client_left);
            request.end(.{ .failed = report.client_left });
            request.release();
        }
    }

    /// Move requests from the queue to free slots, in order, while their prompts fit.
    fn admit(self: *Scheduler) error{OutOfMemory}!void {
        for (0..self.parallel) |slot| {
            if (self.streams[slot] != null) continue;
            self.board.lock.lock();
            defer self.board.lock.unlock();
            if (self.board.queue.items.len == 0) return;
            const request = self.board.queue.items[0];
            if (stream_.pageCount(request.ask.prompt.len) > self.book.available() and self.anyLive()) return;
            _ = self.board.queue.orderedRemove(0);
            self.streams[slot] = try Stream.start(request, self.started, &self.book);
            self.started += 1;
            self.board.live[slot] = .{ .request = request, .progress_ns = sys.nowNs(), .decoding = false, .generated = 0 };
            self.board.totals.live_prompt += request.counts.cached;
        }
    }

    fn anyLive(self: *const Scheduler) bool {
        for (self.streams[0..self.parallel]) |slot| if (slot != null) return true;
        return false;
    }

    /// See that a stream can write its next tokens: younger streams yield to it. False when it has to wait itself.
    fn makeRoom(self: *Scheduler, stream: *Stream) error{OutOfMemory}!bool {
        const returns = stream.pages.items.len == 0 and stream.request.counts.rounds > 0;
        if (stream.pages.items.len == 0) try stream.recall(&self.book);
        const wanted = if (returns) stream_.pageCount(stream.tokens.items.len) else 0;
        while (@max(wanted -| stream.pages.items.len, stream.pagesToWrite(stream_.prefill_rows)) > self.book.available()) {
            const victim = self.youngestAfter(stream) orelse {
                try stream.yield(&self.book);
                stream.due_ns = sys.nowNs() + yield_ns;
                return false;
            };
            self.board.addPreemption();
            try victim.yield(&self.book);
        }
        return true;
    }

    /// The last started stream with memory among those that started after `stream`.
    fn youngestAfter(self: *Scheduler, stream: *const Stream) ?*Stream {
        var found: ?*Stream = null;
        for (self.streams[0..self.parallel]) |*slot| if (slot.*) |*other| {
            if (other.pages.items.len == 0 or other.number <= stream.number) continue;
            if (found == null or other.number > found.?.number) found = other;
        };
        return found;
    }

    fn dropPages(self: *Scheduler) void {
        for (self.book.dropped.items) |page| {
            self.arena.drop(page);
            if (self.link.lost == null and self.link.peers.len > 0) self.frame.drop(page);
        }
        self.book.dropped.clearRetainingCapacity();
        self.board.lock.lock();
        defer self.board.lock.unlock();
        self.board.pages_used = self.book.used();
        self.board.pages_kept = self.book.kept;
        self.board.pages_peak = @max(self.board.pages_peak, self.book.used());
    }

    /// When the next stream is due: in the past for now, far away when there is none.
    fn nextDue(self: *Scheduler) u64 {
        var due: u64 = sys.nowNs() + idle_ns;
        for (self.streams[0..self.parallel]) |*slot| if (slot.*) |*stream| {
            due = @min(due, stream.due_ns);
        };
        return due;
    }

    fn round(self: *Scheduler) error{ PeerDown, OutOfMemory }!void {
        if (self.link.lost != null) return error.PeerDown;
        const started = sys.nowNs();
        var decoding: [board_.max_streams]usize = undefined;
        var count: usize = 0;
        for (0..self.parallel) |slot| if (self.streams[slot]) |*stream| {
            if (stream.due_ns > started) continue;
            if (try self.step(slot, stream)) {
                decoding[count] = slot;
                count += 1;
            }
        };
        if (self.frame.isEmpty()) return;
        try self.link.send(self.frame.bytes.items);
        self.frame.clear();
        try self.scoreLocal(decoding[0..count]);
        try self.link.receive();
        var row: usize = 0;
        for (decoding[0..count]) |slot| row += try self.settle(slot, row);
        if (count > 0) self.pace(started);
    }

    /// Put a stream's next step into the frame. True when scores are asked for; false after a chunk of its prompt.
    fn step(self: *Scheduler, slot: usize, stream: *Stream) error{OutOfMemory}!bool {
        if (!try self.makeRoom(stream)) return false;
        const was_prefilled = stream.request.counts.prefilled_ns != 0;
        const wrote = try stream.write(stream_.prefill_rows, &self.book, self.arena, &self.frame);
        const now = sys.nowNs();
        if (!was_prefilled) {
            self.noteProgress(slot, wrote, 0);
            if (self.knobs.prefill_tokens_s > 0 and wrote > 0) {
                const seconds = @as(f64, @floatFromInt(wrote)) / self.knobs.prefill_tokens_s;
                stream.due_ns = now + @as(u64, @intFromFloat(seconds * std.time.ns_per_s));
                return false;
            }
            if (stream.prefilled()) stream.request.counts.prefilled_ns = now;
        }
        if (!stream.prefilled()) return false;
        const room = stream.request.ask.max_tokens - stream.replyLength();
        stream.draft_count = self.draftFor(stream, @min(self.drafts, room - 1));
        stream.ask(&self.frame);
        return true;
    }

    fn draftFor(self: *Scheduler, stream: *Stream, limit: usize) usize {
        const out = stream.drafts[0..limit];
        const forced = stream.request.ask.forced;
        if (forced.len == 0) return draft.guess(self.model, stream.tokens.items, out).len;
        const rest = forced[@min(stream.replyLength(), forced.len)..];
        const count = @min(rest.len, limit);
        @memcpy(out[0..count], rest[0..count]);
        return count;
    }

    /// This rank's columns for every row asked for, while the others work on theirs.
    fn scoreLocal(self: *Scheduler, slots: []const usize) error{OutOfMemory}!void {
        self.scores.clearRetainingCapacity();
        for (slots) |slot| {
            const stream = &self.streams[slot].?;
            var tokens: [layout.window + wire.max_drafts]Token = undefined;
            const known = stream.tokens.items[stream.tokens.items.len -| layout.window..];
            @memcpy(tokens[0..known.len], known);
            @memcpy(tokens[known.len..][0..stream.draft_count], stream.drafts[0..stream.draft_count]);
            for (0..stream.draft_count + 1) |ahead| {
                const context = tokens[(known.len + ahead) -| layout.window .. known.len + ahead];
                const row = try self.scores.addManyAsSlice(sys.gpa, self.model.width);
                self.model.score(.{ .tokens = context, .topic = stream.request.ask.topic, .since = stream.since() + ahead }, row);
            }
        }
    }

    /// Gather one row of all ranks.
    fn gather(self: *Scheduler, row: usize, scores: *[layout.vocab]u32) error{PeerDown}!void {
        const width = self.model.width;
        @memcpy(scores[0..width], self.scores.items[row * width ..][0..width]);
        for (self.link.buffers, 1..) |buffer, rank| {
            const at = row * width * 4;
            if (buffer.items.len < at + width * 4) return error.PeerDown;
            for (0..width) |column| {
                scores[rank * width + column] = std.mem.readInt(u32, buffer.items[at + column * 4 ..][0..4], .little);
            }
        }
    }

    /// Turn a stream's rows into tokens: the first by its own scores, each further one while the draft before it held. How
    /// many rows it had.
    fn settle(self: *Scheduler, slot: usize, first_row: usize) error{ PeerDown, OutOfMemory }!usize {
        const stream = &self.streams[slot].?;
        const rows = stream.draft_count + 1;
        var finish: ?request_.Finish = null;
        const before = stream.tokens.items.len;
        var accepted: usize = 0;
        for (0..rows) |ahead| {
            var scores: [layout.vocab]u32 = undefined;
            try self.gather(first_row + ahead, &scores);
            const token = stream.choose(&scores);
            finish = try stream.accept(token);
            if (ahead == stream.draft_count or token != stream.drafts[ahead]) break;
            accepted += 1;
            if (finish != null) break;
        }
        const counts = &stream.request.counts;
        counts.rounds += 1;
        counts.drafted += stream.draft_count;
        counts.accepted += accepted;
        try self.publish(slot, stream, before, accepted);
        if (finish) |reason| try self.retire(slot, .{ .finished = reason });
        return rows;
    }

    fn publish(self: *Scheduler, slot: usize, stream: *Stream, before: usize, accepted: usize) error{OutOfMemory}!void {
        const fresh = stream.tokens.items[before..];
        const request = stream.request;
        request.lock.lock();
        if (request.counts.first_ns == 0) request.counts.first_ns = sys.nowNs();
        const appended = request.tokens.appendSlice(sys.gpa, fresh);
        request.lock.unlock();
        try appended;
        request.wake();
        self.noteProgress(slot, 0, fresh.len);
        self.board.lock.lock();
        defer self.board.lock.unlock();
        self.board.totals.rounds += 1;
        self.board.totals.drafted += stream.draft_count;
        self.board.totals.accepted += accepted;
    }

    fn noteProgress(self: *Scheduler, slot: usize, prompt: usize, generated: usize) void {
        const now = sys.nowNs();
        self.board.lock.lock();
        defer self.board.lock.unlock();
        self.board.progress_ns = now;
        self.board.totals.live_prompt += prompt;
        self.board.totals.live_completion += generated;
        if (prompt > 0) self.board.prefill_rate.add(prompt, now);
        if (generated > 0) self.board.decode_rate.add(generated, now);
        if (self.board.live[slot]) |*live| {
            live.progress_ns = now;
            live.decoding = live.decoding or generated > 0;
            live.generated += generated;
        }
    }

    fn pace(self: *Scheduler, started: u64) void {
        const spent = sys.nowNs() - started;
        if (spent < self.knobs.round_ns) sys.sleepNs(self.knobs.round_ns - spent);
    }

    /// Free a slot: its pages go to the book, its request gets the outcome, the log gets a line.
    fn retire(self: *Scheduler, slot: usize, outcome: request_.Outcome) error{OutOfMemory}!void {
        var stream = self.streams[slot].?;
        self.streams[slot] = null;
        const request = stream.request;
        request.hold();
        defer request.release();
        const generated = stream.replyLength();
        try stream.finish(&self.book);
        request.counts.ended_ns = sys.nowNs();
        self.settleTotals(slot, request, generated, outcome);
        switch (outcome) {
            .finished => report.done(request, outcome.finished, self.totals_dialect),
            .failed => |reason| report.ended(request, generated, reason),
            .running => unreachable,
        }
        request.end(outcome);
    }

    fn settleTotals(self: *Scheduler, slot: usize, request: *Request, generated: usize, outcome: request_.Outcome) void {
        self.board.lock.lock();
        defer self.board.lock.unlock();
        self.board.live[slot] = null;
        self.board.observe(request.counts, request.ask.prompt.len, generated);
        switch (outcome) {
            .finished => |reason| if (reason == .length) {
                self.board.totals.cut += 1;
            } else {
                self.board.totals.stopped += 1;
            },
            .failed => |reason| if (reason.ptr == report.client_left.ptr) {
                self.board.totals.disconnected += 1;
            } else {
                self.board.totals.failed += 1;
            },
            .running => unreachable,
        }
    }

    /// A rank is gone: what runs fails, what comes fails, and the server stays up.
    fn peerDown(self: *Scheduler) error{OutOfMemory}!void {
        self.frame.clear();
        self.board.lock.lock();
        const known = self.board.lost_rank != null;
        self.board.lost_rank = self.link.lost orelse 1;
        if (self.link.lost == null) self.link.lost = 1;
        self.board.lock.unlock();
        if (!known) sys.log("[tensorfold] error.PeerDown: rank {d} is gone; requests fail from here on", .{self.link.lost.?});
        try self.endAll(report.peer_down);
    }

    fn endAll(self: *Scheduler, reason: []const u8) error{OutOfMemory}!void {
        for (0..self.parallel) |slot| if (self.streams[slot] != null) try self.retire(slot, .{ .failed = reason });
        self.board.lock.lock();
        defer self.board.lock.unlock();
        for (self.board.queue.items) |request| {
            self.board.totals.failed += 1;
            report.ended(request, 0, reason);
            request.end(.{ .failed = reason });
            request.release();
        }
        self.board.queue.clearRetainingCapacity();
    }
};
