//! GET /metrics in both dialects. Token counters move when a request ends; `generation_tokens_running` moves with every round.

const std = @import("std");
const sys = @import("sys.zig");
const board_ = @import("board.zig");
const Board = board_.Board;
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;

/// Exposition text, one family after the other, all with the same leading labels.
const Page = struct {
    memory: std.mem.Allocator,
    prefix: []const u8,
    labels: []const u8,
    text: std.ArrayList(u8) = .empty,

    fn family(self: *Page, name: []const u8, kind: []const u8, help: []const u8) Failure!void {
        try self.text.print(self.memory, "# HELP {s}{s} {s}\n", .{ self.prefix, name, help });
        try self.text.print(self.memory, "# TYPE {s}{s} {s}\n", .{ self.prefix, name, kind });
    }

    fn sample(self: *Page, name: []const u8, more: []const u8, value: anytype) Failure!void {
        const comma = if (self.labels.len > 0 and more.len > 0) "," else "";
        try self.text.print(self.memory, "{s}{s}{{{s}{s}{s}}} {d}\n", .{ self.prefix, name, self.labels, comma, more, value });
    }

    fn one(self: *Page, name: []const u8, kind: []const u8, help: []const u8, value: anytype) Failure!void {
        try self.family(name, kind, help);
        try self.sample(name, "", value);
    }

    fn histogram(self: *Page, name: []const u8, help: []const u8, values: board_.Histogram) Failure!void {
        try self.family(name, "histogram", help);
        const memory = self.memory;
        const bucket = try std.fmt.allocPrint(memory, "{s}_bucket", .{name});
        for (board_.Histogram.bounds, values.buckets) |bound, count| {
            try self.sample(bucket, try std.fmt.allocPrint(memory, "le=\"{d}\"", .{bound}), count);
        }
        try self.sample(bucket, "le=\"+Inf\"", values.count);
        try self.sample(try std.fmt.allocPrint(memory, "{s}_sum", .{name}), "", values.sum);
        try self.sample(try std.fmt.allocPrint(memory, "{s}_count", .{name}), "", values.count);
    }
};

pub fn handle(call: *Call) Failure!void {
    const board = call.server.board;
    const now = sys.nowNs();
    board.lock.lock();
    // A copy of figures: pointers in it are not followed once the lock is gone.
    const copy = board.*;
    const waiting = board.queue.items.len;
    board.lock.unlock();
    const label = try std.fmt.allocPrint(call.memory, "model=\"{s}\"", .{try escape(call, call.server.name)});
    const text = switch (call.server.knobs.dialect) {
        .live => try live(call, &copy, waiting),
        .totals => try totals(call, &copy, waiting, label, now),
    };
    try call.connection.answer(200, "text/plain; version=0.0.4; charset=utf-8", "", text);
}

fn escape(call: *Call, name: []const u8) Failure![]const u8 {
    const slashes = try std.mem.replaceOwned(u8, call.memory, name, "\\", "\\\\");
    return std.mem.replaceOwned(u8, call.memory, slashes, "\"", "\\\"");
}

fn running(board: *const Board) struct { count: usize, generated: usize } {
    var count: usize = 0;
    var generated: usize = 0;
    for (board.live) |slot| if (slot) |one| {
        count += 1;
        generated += one.generated;
    };
    return .{ .count = count, .generated = generated };
}

fn live(call: *Call, board: *const Board, waiting: usize) Failure![]const u8 {
    var page = Page{ .memory = call.memory, .prefix = "tensorfold:", .labels = "" };
    const sums = board.totals;
    const now = running(board);
    try page.family("requests_total", "counter", "Requests that ended, by key and status.");
    try requests(&page, sums);
    try page.one("requests_running", "gauge", "Requests in a stream slot.", now.count);
    try page.one("requests_waiting", "gauge", "Requests in the queue.", waiting);
    try page.one("generation_tokens_running", "gauge", "Tokens that the running requests have generated so far.", now.generated);
    try page.one("prompt_tokens_total", "counter", "Prompt tokens of ended requests.", sums.ended_prompt);
    try page.one("generation_tokens_total", "counter", "Generated tokens of ended requests.", sums.ended_completion);
    try page.family("kv_cache_usage_ratio", "gauge", "Share of context memory in use or kept.");
    try page.sample("kv_cache_usage_ratio", "pool=\"context\"", share(board.pages_used, call.server.pages));
    try page.one("mtp_drafted_total", "counter", "Tokens drafted.", sums.drafted);
    try page.one("mtp_accepted_total", "counter", "Drafted tokens that held.", sums.accepted);
    try page.one("decode_rounds_total", "counter", "Decode rounds, counted for each stream.", sums.rounds);
    try page.one("client_disconnections_total", "counter", "Requests whose client left.", sums.disconnected);
    try page.one("preemptions_total", "counter", "Streams that gave their memory to others.", sums.preempted);
    try page.histogram("request_latency_seconds", "From a request's arrival to its end.", board.latency);
    try page.histogram("time_to_first_token_seconds", "From a request's arrival to its first token.", board.first_token);
    try page.histogram("request_decode_seconds", "From the end of the prompt to the end.", board.decode);
    try page.histogram("request_prefill_seconds", "From a stream slot to the end of the prompt.", board.prefill);
    try page.histogram("request_time_per_output_token_seconds", "Between two tokens, a request's mean.", board.per_token);
    return page.text.items;
}

fn requests(page: *Page, sums: board_.Totals) Failure!void {
    const statuses = .{
        .{ "stop", sums.stopped },
        .{ "length", sums.cut },
        .{ "error", sums.failed },
        .{ "client-left", sums.disconnected },
        .{ "rejected", sums.rejected },
    };
    inline for (statuses) |entry| {
        try page.sample("requests_total", "key=\"default\",status=\"" ++ entry[0] ++ "\"", entry[1]);
    }
}

fn share(part: usize, whole: usize) f64 {
    return if (whole == 0) 0 else @as(f64, @floatFromInt(part)) / @as(f64, @floatFromInt(whole));
}

fn totals(call: *Call, board: *const Board, waiting: usize, label: []const u8, now: u64) Failure![]const u8 {
    var page = Page{ .memory = call.memory, .prefix = "tensorfold_", .labels = label };
    const sums = board.totals;
    var stalled: usize = 0;
    for (board.live) |slot| if (slot) |one| {
        stalled += @intFromBool(now -| one.progress_ns > board_.stalled_ns);
    };
    try page.one("requests_total", "counter", "Requests taken.", sums.requests);
    try page.one("request_errors_total", "counter", "Requests that the engine failed.", sums.failed);
    try page.one("requests_rejected_total", "counter", "Requests refused before they ran.", sums.rejected);
    try page.one("prompt_tokens_total", "counter", "Prompt tokens of ended requests.", sums.ended_prompt);
    try page.one("cached_tokens_total", "counter", "Prompt tokens found in kept conversations.", sums.cached);
    try page.one("completion_tokens_total", "counter", "Generated tokens of ended requests.", sums.ended_completion);
    try page.one("decode_rounds_total", "counter", "Decode rounds, counted for each stream.", sums.rounds);
    try page.one("decode_seconds_total", "counter", "Time in decode of ended requests.", sums.decode_s);
    try page.one("prefill_seconds_total", "counter", "Time in prefill of ended requests.", sums.prefill_s);
    try page.one("requests_inflight", "gauge", "Requests running or waiting.", running(board).count + waiting);
    try page.one("requests_stalled", "gauge", "Running requests without progress for 30 s.", stalled);
    try page.one("engine_fatal", "gauge", "1 once a rank is gone.", @as(u8, @intFromBool(board.lost_rank != null)));
    try page.one("uptime_seconds", "gauge", "Time since the server came up.", sys.seconds(now - board.started_ns));
    return page.text.items;
}
