//! GET /health in both dialects, /v1/models and /memory. None of them asks the peer anything.

const std = @import("std");
const sys = @import("sys.zig");
const board_ = @import("board.zig");
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;

pub fn health(call: *Call) Failure!void {
    if (call.server.api_key != null) return call.answer(200, .{ .status = "ok" });
    switch (call.server.knobs.dialect) {
        .live => try live(call),
        .totals => try totals(call),
    }
}

const Memory = struct { active: u64, cache: u64, peak: u64 };

/// Bytes in use by weights and contexts, bytes kept for conversations, and the most there ever was. The board is locked.
fn memory(call: *Call, board: *const board_.Board) Memory {
    const page_bytes = call.server.page_bytes;
    return .{
        .active = call.server.model_bytes + (board.pages_used - board.pages_kept) * page_bytes,
        .cache = board.pages_kept * page_bytes,
        .peak = call.server.model_bytes + board.pages_peak * page_bytes,
    };
}

fn live(call: *Call) Failure!void {
    const board = call.server.board;
    const now = sys.nowNs();
    board.lock.lock();
    const now_memory = memory(call, board);
    var connections: usize = 0;
    for (board.live) |slot| connections += @intFromBool(slot != null);
    const waiting = board.queue.items.len;
    const rates = .{ board.decode_rate.read(now), board.prefill_rate.read(now) };
    board.lock.unlock();
    try call.answer(200, .{
        .status = "ok",
        .model = call.server.name,
        .model_ids = try modelIds(call),
        .max_batch_size = call.server.options.parallel,
        .warming = false,
        .memory = now_memory,
        .live = .{
            .connections = connections,
            .waiting = waiting,
            .decode_tokens_per_second = rates[0],
            .prefill_tokens_per_second = rates[1],
        },
    });
}

fn modelIds(call: *Call) Failure![]const []const u8 {
    return std.mem.concat(call.memory, []const u8, &.{ &.{call.server.name}, call.server.options.aliases.items });
}

fn totals(call: *Call) Failure!void {
    const board = call.server.board;
    const now = sys.nowNs();
    var stalled: std.ArrayList([]const u8) = .empty;
    board.lock.lock();
    var decoding: usize = 0;
    var prefilling: usize = 0;
    var oldest_ns: u64 = now;
    for (board.live) |slot| if (slot) |one| {
        if (one.decoding) decoding += 1 else prefilling += 1;
        oldest_ns = @min(oldest_ns, one.request.counts.submitted_ns);
        if (now -| one.progress_ns <= board_.stalled_ns) continue;
        stalled.append(call.memory, call.memory.dupe(u8, one.request.id) catch continue) catch {};
    };
    const inflight = decoding + prefilling + board.queue.items.len;
    const sums = board.totals;
    const idle_ns = if (inflight > 0) 0 else now -| board.progress_ns;
    const lost = board.lost_rank;
    const uptime_ns = now - board.started_ns;
    board.lock.unlock();
    const sick = lost != null or stalled.items.len > 0;
    const strict = std.mem.indexOf(u8, call.request.query, "strict=1") != null;
    try call.answer(if (strict and sick) 503 else 200, .{
        .ok = true,
        .mode = "native",
        .uptime_s = sys.seconds(uptime_ns),
        .inflight = inflight,
        .oldest_s = sys.seconds(now -| oldest_ns),
        .idle_s = sys.seconds(idle_ns),
        .requests = sums.requests,
        .errors = sums.failed,
        .fatal = lost != null,
        .stalled = stalled.items,
        .streams = .{ .decoding = decoding, .prefilling = prefilling, .max = call.server.options.parallel },
        .context_length = call.server.context,
        .prompt_tokens_total = sums.live_prompt,
        .completion_tokens_total = sums.live_completion,
        .drafted_total = sums.drafted,
        .accepted_total = sums.accepted,
        .rounds_total = sums.rounds,
    });
}

pub fn memoryRoute(call: *Call) Failure!void {
    const board = call.server.board;
    board.lock.lock();
    const now_memory = memory(call, board);
    board.lock.unlock();
    try call.answer(200, now_memory);
}

const Model = struct {
    id: []const u8,
    object: []const u8 = "model",
    created: u64,
    owned_by: []const u8 = "tensorfold",
    context_length: usize,
    max_model_len: usize,
};

pub fn models(call: *Call) Failure!void {
    const ids = try modelIds(call);
    const data = try call.memory.alloc(Model, ids.len);
    for (ids, data) |id, *model| model.* = .{
        .id = id,
        .created = call.server.created_s,
        .context_length = call.server.context,
        .max_model_len = call.server.context,
    };
    try call.answer(200, .{ .object = "list", .data = data });
}
