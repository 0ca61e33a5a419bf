//! Rank 0's log lines about requests, and the digest of a reply.

const std = @import("std");
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const request_ = @import("request.zig");
const Request = request_.Request;

pub const client_left: []const u8 = "client-left";
pub const peer_down: []const u8 = "PeerDown";

/// The first 16 hexadecimal digits of sha256 over the reply's token ids, four little-endian bytes each.
pub fn tokenSha(tokens: []const layout.Token) [16]u8 {
    var hasher = std.crypto.hash.sha2.Sha256.init(.{});
    for (tokens) |token| {
        var raw: [4]u8 = undefined;
        std.mem.writeInt(u32, &raw, token, .little);
        hasher.update(&raw);
    }
    var digest: [32]u8 = undefined;
    hasher.final(&digest);
    return std.fmt.bytesToHex(digest[0..8].*, .lower);
}

pub fn done(request: *Request, finish: request_.Finish, with_rates: bool) void {
    const counts = request.counts;
    const tokens = request.tokens.items;
    var rates: [96]u8 = undefined;
    const decode_s = sys.seconds(counts.ended_ns -| counts.prefilled_ns);
    const tail = if (!with_rates) "" else std.fmt.bufPrint(&rates, " tok/s={d:.1} ttft={d:.3} prefill={d:.3}", .{
        if (decode_s > 0) @as(f64, @floatFromInt(tokens.len)) / decode_s else 0,
        sys.seconds(counts.first_ns -| counts.submitted_ns),
        sys.seconds(counts.prefilled_ns -| counts.started_ns),
    }) catch "";
    sys.log("[tensorfold] done {s} prompt={d} cached={d} thinking={s} effort={s} tokens={d} sha={s} finish={s} rounds={d} " ++
        "accepted={d}/{d}{s}", .{
        request.id,         request.ask.prompt.len, counts.cached,    if (request.ask.thinking) "on" else "off",
        request.ask.effort, tokens.len,             tokenSha(tokens), @tagName(finish),
        counts.rounds,      counts.accepted,        counts.drafted,   tail,
    });
}

pub fn ended(request: *Request, generated: usize, reason: []const u8) void {
    const after = sys.seconds(sys.nowNs() - request.counts.submitted_ns);
    const left = reason.ptr == client_left.ptr;
    const before, const name, const behind = if (left) .{ "", reason, "" } else .{ "error (", reason, ")" };
    sys.log("ended {s} reason={s}{s}{s} prompt={d} tokens={d} after={d:.1}s", .{
        request.id, before, name, behind, request.ask.prompt.len, generated, after,
    });
}
