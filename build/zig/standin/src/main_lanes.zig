//! tf-dsv41-lanes MODEL CACHE RANK WORLD MASTER_IP PORT KIT [--flag value ...]: every rank but 0.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const net = @import("net.zig");
const inputs = @import("inputs.zig");
const layout = @import("layout.zig");
const rankfile = @import("rankfile.zig");
const Knobs = @import("knobs.zig").Knobs;
const Arena = @import("arena.zig").Arena;
const follower = @import("follower.zig");
const models = @import("model.zig");

const usage = "usage: tf-dsv41-lanes MODEL CACHE RANK WORLD MASTER_IP PORT KIT [--flag value ...]";
const default_pool = 262144;
const default_drafts = 5;
/// Taken for the contract's sake: they steer the GPU and the fabric, which a stand-in has not.
const ignored = [_][]const u8{
    "--rdma", "--graphs", "--side", "--prefetch", "--aio", "--arena-gib", "--rdma-kernels", "--round-rows", "--streams",
};

const Options = struct {
    model: []const u8,
    cache: []const u8,
    rank: usize,
    world: usize,
    master: net.Address,
    kit: []const u8,
    engram: ?[]const u8 = null,
    token_map: ?[]const u8 = null,
    pool: usize = default_pool,
    drafts: usize = default_drafts,
    context: ?usize = null,
};

pub fn main(init: std.process.Init.Minimal) void {
    const options = parse(sys.arguments(init.args));
    const knobs = Knobs.read(init.environ);
    endOnSigterm();
    run(options, knobs) catch |problem| sys.fail(1, "tf-dsv41-lanes: rank {d} of {d}: error.{s}", .{
        options.rank, options.world, @errorName(problem),
    });
}

/// As process 1 of a container a program without a handler would not notice SIGTERM.
fn endOnSigterm() void {
    const action = linux.Sigaction{ .handler = .{ .handler = ended }, .mask = linux.sigemptyset(), .flags = 0 };
    _ = linux.sigaction(.TERM, &action, null);
}

fn ended(_: linux.SIG) callconv(.c) void {
    sys.exit(128 + 15);
}

fn parse(args: []const []const u8) Options {
    if (args.len < 7) sys.fail(2, usage, .{});
    for (args[0..7]) |arg| if (std.mem.startsWith(u8, arg, "--")) sys.fail(2, usage, .{});
    const port = std.fmt.parseInt(u16, args[5], 10) catch refuse("PORT", args[5]);
    var options = Options{
        .model = args[0],
        .cache = args[1],
        .rank = whole("RANK", args[2]),
        .world = whole("WORLD", args[3]),
        .master = net.Address.parse(args[4], port) orelse refuse("MASTER_IP", args[4]),
        .kit = args[6],
    };
    const known_world = options.world == 1 or options.world == 2 or options.world == 4;
    if (!known_world or options.rank == 0 or options.rank >= options.world) refuse("RANK and WORLD", args[2]);
    var at: usize = 7;
    while (at < args.len) at = flag(&options, args, at);
    return options;
}

/// Take the flag at `at`; where the next one stands. A switch may come without a value.
fn flag(options: *Options, args: []const []const u8, at: usize) usize {
    const name = args[at];
    const has_value = at + 1 < args.len and !std.mem.startsWith(u8, args[at + 1], "--");
    const next = at + @as(usize, if (has_value) 2 else 1);
    for (ignored) |known| if (std.mem.eql(u8, name, known)) return next;
    if (std.mem.eql(u8, name, "--drafts") and !has_value) return next;
    if (!has_value) refuse(name, "no value");
    const value = args[at + 1];
    if (std.mem.eql(u8, name, "--engram")) {
        options.engram = value;
    } else if (std.mem.eql(u8, name, "--token-map")) {
        options.token_map = value;
    } else if (std.mem.eql(u8, name, "--pool")) {
        options.pool = whole(name, value);
    } else if (std.mem.eql(u8, name, "--drafts")) {
        options.drafts = whole(name, value);
    } else if (std.mem.eql(u8, name, "--context")) {
        options.context = whole(name, value);
    } else refuse(name, value);
    return next;
}

fn whole(name: []const u8, value: []const u8) usize {
    return std.fmt.parseInt(u32, value, 10) catch refuse(name, value);
}

fn refuse(name: []const u8, value: []const u8) noreturn {
    sys.fail(1, "tf-dsv41-lanes: error.BadArgument: {s}: {s}", .{ name, value });
}

fn run(options: Options, knobs: Knobs) !void {
    const started = sys.nowNs();
    const window = try inputs.modelWindow(options.model);
    const context = options.context orelse window;
    try inputs.checkKit(options.kit, sys.join(options.kit, "aot"), context);
    const file = try rankfile.open(options.cache, options.rank, options.world);
    const model = try models.Model.load(file, options.rank, options.world, try inputs.engram(options.engram, options.token_map));
    try knobs.payLoad(started);
    const arena = try Arena.init(options.pool, knobs.bytes_per_token);
    sys.out("{{\"rank\": {d}, \"loaded_s\": {d:.1}, \"pool\": {d}, \"drafts\": {d}, \"arena_used\": {d}}}", .{
        options.rank, sys.seconds(sys.nowNs() - started), options.pool, options.drafts, model.bytes,
    });
    const fd = try follower.connect(options.master, options.rank, options.world, knobs.connect_ns);
    var lanes = follower.Follower{ .model = &model, .arena = arena, .context = context, .drafts = options.drafts };
    lanes.follow(fd) catch {
        sys.out("{{\"rank\": {d}, \"follow\": \"PeerDown\"}}", .{options.rank});
        sys.exit(1);
    };
    sys.out("{{\"rank\": {d}, \"followed\": true}}", .{options.rank});
}
