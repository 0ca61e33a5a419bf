//! The figures at the end of a reply.

const std = @import("std");
const sys = @import("sys.zig");
const report = @import("report.zig");
const Request = @import("request.zig").Request;

pub const Usage = struct {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: struct { cached_tokens: usize },
    completion_tokens_details: struct { reasoning_tokens: usize },
};

pub const Engine = struct {
    tokens_per_second: f64,
    seconds: f64,
    prefill_seconds: f64,
    time_to_first_token: f64,
    token_sha: []const u8,
};

pub const Speculative = struct { rounds: usize, drafted: usize, accepted: usize, acceptance_rate: f64, tokens_per_round: f64 };

pub const Figures = struct { usage: Usage, tensorfold: Engine, speculative: Speculative };

/// Figures of an ended request.
pub fn of(request: *Request, memory: std.mem.Allocator) error{OutOfMemory}!Figures {
    request.lock.lock();
    defer request.lock.unlock();
    const counts = request.counts;
    const completion = request.tokens.items.len;
    const prompt = request.ask.prompt.len;
    const decode_s = sys.seconds(counts.ended_ns -| counts.prefilled_ns);
    return .{
        .usage = .{
            .prompt_tokens = prompt,
            .completion_tokens = completion,
            .total_tokens = prompt + completion,
            .prompt_tokens_details = .{ .cached_tokens = counts.cached },
            .completion_tokens_details = .{ .reasoning_tokens = counts.reasoning },
        },
        .tensorfold = .{
            .tokens_per_second = ratio(@floatFromInt(completion), decode_s),
            .seconds = sys.seconds(counts.ended_ns - counts.submitted_ns),
            .prefill_seconds = sys.seconds(counts.prefilled_ns -| counts.started_ns),
            .time_to_first_token = sys.seconds(counts.first_ns -| counts.submitted_ns),
            .token_sha = try memory.dupe(u8, &report.tokenSha(request.tokens.items)),
        },
        .speculative = .{
            .rounds = counts.rounds,
            .drafted = counts.drafted,
            .accepted = counts.accepted,
            .acceptance_rate = ratio(@floatFromInt(counts.accepted), @floatFromInt(counts.drafted)),
            .tokens_per_round = ratio(@floatFromInt(completion), @floatFromInt(counts.rounds)),
        },
    };
}

/// Rounded to four places, 0 where there is nothing to divide by.
fn ratio(part: f64, whole: f64) f64 {
    return if (whole > 0) @round(part / whole * 10000) / 10000 else 0;
}
