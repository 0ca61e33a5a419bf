//! The stand-in's own knobs: environment variables TF_STANDIN_*, the same on every rank, all optional.

const std = @import("std");
const sys = @import("sys.zig");

pub const Dialect = enum { live, totals };

pub const Knobs = struct {
    /// Loading takes at least this long.
    load_ns: u64,
    /// Memory touched at load beside the weights, kept until the end.
    load_bytes: usize,
    /// Context memory of one token on one rank.
    bytes_per_token: usize,
    /// A decode round takes at least this long.
    round_ns: u64,
    /// Prompt tokens a second of one stream; 0 for as fast as it goes.
    prefill_tokens_s: f64,
    /// How long a follower looks for rank 0.
    connect_ns: u64,
    /// Tokens of context memory on rank 0, where they are not as many as the context; followers take --pool.
    pool: ?usize,
    dialect: Dialect,
    proc: []const u8,

    pub fn read(environ: std.process.Environ) Knobs {
        const dialect = environ.getPosix("TF_STANDIN_DIALECT") orelse "live";
        return .{
            .load_ns = nanoseconds(number(environ, "TF_STANDIN_LOAD_S", 0), std.time.ns_per_s),
            .load_bytes = @intFromFloat(number(environ, "TF_STANDIN_LOAD_MIB", 0) * (1 << 20)),
            .bytes_per_token = @intFromFloat(number(environ, "TF_STANDIN_BYTES_PER_TOKEN", 930)),
            .round_ns = nanoseconds(number(environ, "TF_STANDIN_ROUND_MS", 0), std.time.ns_per_ms),
            .prefill_tokens_s = number(environ, "TF_STANDIN_PREFILL_TOK_S", 0),
            .connect_ns = nanoseconds(number(environ, "TF_STANDIN_CONNECT_S", 300), std.time.ns_per_s),
            .pool = if (environ.getPosix(pool_name) == null) null else @intFromFloat(number(environ, pool_name, 0)),
            .dialect = std.meta.stringToEnum(Dialect, dialect) orelse
                sys.fail(1, "error.BadArgument: TF_STANDIN_DIALECT={s} is neither live nor totals", .{dialect}),
            .proc = environ.getPosix("TF_STANDIN_PROC") orelse "/proc",
        };
    }

    /// Spend what loading has to cost beyond the loading itself.
    pub fn payLoad(self: Knobs, started_ns: u64) sys.Failure!void {
        if (self.load_bytes > 0) {
            const memory = try sys.reserve(self.load_bytes);
            var at: usize = 0;
            while (at < memory.len) : (at += 4096) memory[at] = 1;
        }
        const spent = sys.nowNs() - started_ns;
        if (spent < self.load_ns) sys.sleepNs(self.load_ns - spent);
    }
};

const pool_name = "TF_STANDIN_POOL";

fn nanoseconds(value: f64, unit: f64) u64 {
    return @intFromFloat(value * unit);
}

fn number(environ: std.process.Environ, name: []const u8, default: f64) f64 {
    const text = environ.getPosix(name) orelse return default;
    const value = std.fmt.parseFloat(f64, text) catch -1;
    if (value >= 0 and value <= 1e12) return value;
    sys.fail(1, "error.BadArgument: {s}={s} is not a number from 0 to 1e12", .{ name, text });
}
