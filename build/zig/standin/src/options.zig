//! The command line and the environment of rank 0.

const std = @import("std");
const sys = @import("sys.zig");
const net = @import("net.zig");

pub const usage = "usage: tensorfold-native serve MODEL [--host H] [--port P] [--name NAME] [--context N] [--parallel N] " ++
    "[--thinking|--no-thinking] [--max-tokens N] [--temperature T] [--top-p P] [--top-k K] [--api-key K|--api-key-file F] " ++
    "[--no-drafts] [--prompt-cache-gib G] [--backend cuda] ...";

pub const Options = struct {
    model: []const u8 = "",
    host: []const u8 = "127.0.0.1",
    port: u16 = 8000,
    name: ?[]const u8 = null,
    aliases: std.ArrayList([]const u8) = .empty,
    api_key: ?[]const u8 = null,
    api_key_file: ?[]const u8 = null,
    metrics_open: bool = false,
    context: ?usize = null,
    parallel: usize = 4,
    thinking: bool = true,
    reasoning_effort: []const u8 = "medium",
    thinking_budget: ?usize = null,
    max_tokens: usize = 32768,
    temperature: f64 = 1.0,
    top_p: f64 = 0.95,
    top_k: u32 = 20,
    drafts: bool = true,
    prompt_cache_gib: f64 = 2,
};

pub const Environment = struct {
    master: net.Address,
    world: usize,
    rank_cache: []const u8,
    kit: []const u8,
    kernels: []const u8,
    engram: ?[]const u8,
    token_map: ?[]const u8,
    drafts: usize,
    /// Memory to keep free; null for the default.
    reserve_gib: ?f64,
};

/// Options that take a value and steer what a stand-in has not.
const ignored = [_][]const u8{ "--loop-guard", "--compact-at", "--device" };

const Cursor = struct {
    args: []const []const u8,
    at: usize = 0,

    fn next(self: *Cursor) ?[]const u8 {
        if (self.at == self.args.len) return null;
        defer self.at += 1;
        return self.args[self.at];
    }

    fn value(self: *Cursor) []const u8 {
        return self.next() orelse misuse();
    }

    fn number(self: *Cursor, comptime T: type) T {
        return std.fmt.parseInt(T, self.value(), 10) catch misuse();
    }

    fn real(self: *Cursor, most: f64) f64 {
        const given = std.fmt.parseFloat(f64, self.value()) catch misuse();
        if (!(given >= 0 and given <= most)) misuse();
        return given;
    }
};

fn misuse() noreturn {
    sys.fail(2, usage, .{});
}

pub fn parse(args: []const []const u8) Options {
    var cursor = Cursor{ .args = args };
    if (!std.mem.eql(u8, cursor.next() orelse misuse(), "serve")) misuse();
    var options = Options{};
    while (cursor.next()) |arg| {
        if (std.mem.startsWith(u8, arg, "-")) {
            if (!texts(&options, arg, &cursor) and !numbers(&options, arg, &cursor) and !switches(&options, arg)) misuse();
        } else {
            if (options.model.len > 0) misuse();
            options.model = arg;
        }
    }
    if (options.model.len == 0 or options.parallel == 0 or options.parallel > 64 or options.max_tokens == 0) misuse();
    return options;
}

fn texts(options: *Options, arg: []const u8, cursor: *Cursor) bool {
    if (eql(arg, "--host")) options.host = cursor.value() //
    else if (eql(arg, "--name")) options.name = cursor.value() //
    else if (eql(arg, "--alias")) options.aliases.append(sys.gpa, cursor.value()) catch misuse() //
    else if (eql(arg, "--api-key")) options.api_key = cursor.value() //
    else if (eql(arg, "--api-key-file")) options.api_key_file = cursor.value() //
    else if (eql(arg, "--reasoning-effort")) options.reasoning_effort = cursor.value() //
    else if (eql(arg, "--backend")) {
        if (!eql(cursor.value(), "cuda")) misuse();
    } else {
        for (ignored) |known| if (eql(arg, known)) {
            _ = cursor.value();
            return true;
        };
        return false;
    }
    return true;
}

fn numbers(options: *Options, arg: []const u8, cursor: *Cursor) bool {
    if (eql(arg, "--port")) options.port = cursor.number(u16) //
    else if (eql(arg, "--context")) options.context = cursor.number(u32) //
    else if (eql(arg, "--parallel")) options.parallel = cursor.number(u32) //
    else if (eql(arg, "--max-tokens")) options.max_tokens = cursor.number(u32) //
    else if (eql(arg, "--thinking-budget")) options.thinking_budget = cursor.number(u32) //
    else if (eql(arg, "--temperature")) options.temperature = cursor.real(100) //
    else if (eql(arg, "--top-p")) options.top_p = cursor.real(1) //
    else if (eql(arg, "--top-k")) options.top_k = cursor.number(u32) //
    else if (eql(arg, "--prompt-cache-gib")) options.prompt_cache_gib = cursor.real(1e6) //
    else return false;
    return true;
}

fn switches(options: *Options, arg: []const u8) bool {
    if (eql(arg, "--thinking")) options.thinking = true //
    else if (eql(arg, "--no-thinking")) options.thinking = false //
    else if (eql(arg, "--no-drafts")) options.drafts = false //
    else if (eql(arg, "--metrics-open")) options.metrics_open = true //
    else return eql(arg, "--dashboard");
    return true;
}

fn eql(left: []const u8, right: []const u8) bool {
    return std.mem.eql(u8, left, right);
}

const default_drafts = "5";

pub fn environment(environ: std.process.Environ) Environment {
    const port = whole(environ, "TF_TP_PORT", "29620", 65535);
    const master = required(environ, "TF_TP_MASTER");
    const world = whole(environ, "TF_TP_WORLD", "2", 4);
    const known_world = world == 1 or world == 2 or world == 4;
    if (!known_world) sys.fail(1, "tensorfold: error.BadArgument: TF_TP_WORLD={d} is none of 1, 2, 4", .{world});
    return .{
        .master = net.Address.parse(master, @intCast(port)) orelse
            sys.fail(1, "tensorfold: error.BadArgument: TF_TP_MASTER={s} is not an IPv4 address", .{master}),
        .world = world,
        .rank_cache = required(environ, "TF_DS_RANK_CACHE"),
        .kit = required(environ, "TF_DS_KIT"),
        .kernels = required(environ, "TENSORFOLD_CUDA_KERNELS"),
        .engram = optional(environ, "TF_DS_ENGRAM"),
        .token_map = optional(environ, "TF_DS_TOKEN_MAP"),
        .drafts = whole(environ, "TF_DS_SERVED_K", default_drafts, 8),
        .reserve_gib = reserve(environ),
    };
}

fn optional(environ: std.process.Environ, name: []const u8) ?[]const u8 {
    const text = environ.getPosix(name) orelse return null;
    return if (text.len == 0) null else text;
}

fn required(environ: std.process.Environ, name: []const u8) []const u8 {
    return optional(environ, name) orelse sys.fail(1, "tensorfold: error.BadArgument: {s} is not set", .{name});
}

fn whole(environ: std.process.Environ, name: []const u8, default: []const u8, most: usize) usize {
    const text = optional(environ, name) orelse default;
    const value = std.fmt.parseInt(usize, text, 10) catch most + 1;
    if (value > most) sys.fail(1, "tensorfold: error.BadArgument: {s}={s} is not a number up to {d}", .{ name, text, most });
    return value;
}

fn reserve(environ: std.process.Environ) ?f64 {
    const name = "TENSORFOLD_MEMORY_RESERVE_GIB";
    const text = optional(environ, name) orelse return null;
    const value = std.fmt.parseFloat(f64, text) catch -1;
    if (value >= 0 and value <= 1e6) return value;
    sys.fail(1, "tensorfold: error.BadArgument: {s}={s} is not a number of GiB", .{ name, text });
}
