//! tensorfold-native serve MODEL ...: rank 0, the API server and its part of the model.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const net = @import("net.zig");
const inputs = @import("inputs.zig");
const memory = @import("memory.zig");
const options_ = @import("options.zig");
const pages = @import("pages.zig");
const rankfile = @import("rankfile.zig");
const routes = @import("routes.zig");
const arena_ = @import("arena.zig");
const models = @import("model.zig");
const Arena = arena_.Arena;
const Board = @import("board.zig").Board;
const Environment = options_.Environment;
const Knobs = @import("knobs.zig").Knobs;
const Link = @import("link.zig").Link;
const Options = options_.Options;
const Scheduler = @import("scheduler.zig").Scheduler;
const Server = @import("server.zig").Server;

/// How long an orderly end waits for the running round, in case a silent rank holds it.
const end_limit_ns = 3 * std.time.ns_per_s;

pub fn main(init: std.process.Init.Minimal) void {
    var args: std.ArrayList([]const u8) = .empty;
    var iterator = init.args.iterate();
    _ = iterator.skip();
    while (iterator.next()) |arg| args.append(sys.gpa, arg) catch sys.fail(1, "error.OutOfMemory", .{});
    const options = options_.parse(args.items);
    if (!sys.exists(sys.zero(options.model))) sys.fail(1, "tensorfold: {s} is neither a directory nor a Hugging Face repo id", .{options.model});
    const environment = options_.environment(init.environ);
    run(options, environment, Knobs.read(init.environ)) catch |problem| sys.fail(1, "tensorfold: error.{s}", .{@errorName(problem)});
}

/// SIGTERM and SIGINT come to one thread, which ends the process in order.
const Signals = struct {
    fd: i32,
    serving: std.atomic.Value(?*Board) = .init(null),
    ended: sys.Signal = .{},

    fn block() sys.Failure!Signals {
        var set = linux.sigemptyset();
        linux.sigaddset(&set, .TERM);
        linux.sigaddset(&set, .INT);
        _ = try sys.check(linux.sigprocmask(linux.SIG.BLOCK, &set, null));
        return .{ .fd = @intCast(try sys.check(linux.signalfd(-1, &set, linux.SFD.CLOEXEC))) };
    }

    fn watch(self: *Signals) void {
        var info: [128]u8 = undefined;
        _ = sys.retry(linux.read, .{ self.fd, @as([*]u8, &info), info.len }) catch {};
        const board = self.serving.load(.acquire) orelse sys.exit(0);
        const seen = self.ended.read();
        board.stop();
        if (seen == 0) self.ended.wait(0, end_limit_ns);
        sys.log("[tensorfold] ended", .{});
        sys.exit(0);
    }
};

fn run(options: Options, environment: Environment, knobs: Knobs) !void {
    const started = sys.nowNs();
    var signals = try Signals.block();
    const watcher = try std.Thread.spawn(.{ .stack_size = 1 << 20 }, Signals.watch, .{&signals});
    watcher.detach();
    const api_key = try apiKey(options);
    const host = net.Address.parse(if (std.mem.eql(u8, options.host, "localhost")) "127.0.0.1" else options.host, options.port) orelse
        sys.fail(1, "tensorfold: error.BadArgument: --host {s} is not an IPv4 address", .{options.host});
    const context = options.context orelse try inputs.modelWindow(options.model);
    _ = try inputs.modelWindow(options.model);
    try inputs.checkKit(environment.kit, environment.kernels, context);
    const file = try rankfile.open(environment.rank_cache, 0, environment.world);
    const room = try checkMemory(options, environment, knobs, context, file.data_bytes + file.index_bytes + knobs.load_bytes);
    const model = try models.Model.load(file, 0, environment.world, try openEngram(environment));
    try knobs.payLoad(started);
    announceMemory(options, context, room);
    const loaded_s = sys.seconds(sys.nowNs() - started);
    const arena = try Arena.init(knobs.pool orelse context, knobs.bytes_per_token);
    var link = Link.rendezvous(environment.master, environment.world) catch |problem| sys.fail(1, "tensorfold: cannot listen for ranks on port {d}: error.{s}", .{
        environment.master.port, @errorName(problem),
    });
    const listener = net.listen(host) catch |problem| sys.fail(1, "tensorfold: cannot listen on {s}:{d}: error.{s}", .{
        options.host, options.port, @errorName(problem),
    });
    var board = Board.init();
    const kept_bytes: f64 = options.prompt_cache_gib * memory.gib;
    var scheduler = Scheduler{
        .board = &board,
        .model = &model,
        .link = &link,
        .arena = arena,
        .book = try pages.Book.init(arena.count, @intFromFloat(kept_bytes / @as(f64, @floatFromInt(arena.stride)))),
        .knobs = knobs,
        .parallel = options.parallel,
        .drafts = if (options.drafts) environment.drafts else 0,
        .totals_dialect = knobs.dialect == .totals,
    };
    var server = Server{
        .options = options,
        .name = options.name orelse std.fs.path.basename(options.model),
        .api_key = api_key,
        .context = context,
        .world = environment.world,
        .pages = arena.count,
        .page_bytes = arena.stride,
        .model_bytes = room.model_bytes,
        .knobs = knobs,
        .board = &board,
        .created_s = sys.wallS(),
    };
    signals.serving.store(&board, .release);
    const door = try std.Thread.spawn(.{ .stack_size = 1 << 20 }, routes.serve, .{ &server, listener });
    door.detach();
    sys.log("[tensorfold] serving {s} at http://{s}:{d}/v1 (sampling: temperature {d:.1}, top-p {d}, top-k {d}; drafts: {s}; context: {d}; loaded in {d:.1}s)", .{
        server.name,                               options.host, options.port, options.temperature, options.top_p, options.top_k,
        if (scheduler.drafts > 0) "on" else "off", context,      loaded_s,
    });
    try scheduler.run();
    signals.ended.notify();
    // The watching thread ends the process.
    while (true) sys.sleepNs(std.time.ns_per_s);
}

fn apiKey(options: Options) !?[]const u8 {
    const path = options.api_key_file orelse return options.api_key;
    const text = sys.readFile(sys.zero(path), 4096) catch |problem| sys.fail(1, "tensorfold: cannot read the API key file {s}: error.{s}", .{ path, @errorName(problem) });
    const key = std.mem.trim(u8, text, " \t\r\n");
    if (key.len == 0) sys.fail(1, "tensorfold: the API key file {s} is empty", .{path});
    return key;
}

fn openEngram(environment: Environment) !?models.Engram {
    const folder = environment.engram orelse return null;
    const map = environment.token_map orelse return error.BadTokenMap;
    return try models.Engram.open(folder, try inputs.tokenMap(map));
}

/// Refuse weights that do not fit. Contexts are not counted: nobody knows yet how long they will be.
fn checkMemory(options: Options, environment: Environment, knobs: Knobs, context: usize, model_bytes: u64) !memory.Room {
    const room = memory.room(knobs.proc, environment.reserve_gib, model_bytes) orelse
        sys.fail(1, "tensorfold: cannot read MemTotal and MemAvailable from {s}/meminfo", .{knobs.proc});
    if (!room.fits()) sys.fail(1, "tensorfold: {d} x {d} on rank 0 leaves {d:.2} GiB, under the {d:.1} GiB hard floor; fit: 0 stream(s)", .{
        options.parallel, context, memory.inGib(room.available_bytes -| model_bytes), memory.inGib(room.reserve_bytes),
    });
    return room;
}

fn announceMemory(options: Options, context: usize, room: memory.Room) void {
    sys.log("[tensorfold] CUDA sm_121 device 0 (stand-in, memory shared with the host): model {d:.1} GiB; {d} streams at once, 0.00 GiB each " ++
        "at a {d}-token window, of {d:.1} GiB left after a {d:.1} GiB reserve; prompts in 2048-row chunks", .{
        memory.inGib(room.model_bytes), options.parallel, context, memory.inGib(room.left()), memory.inGib(room.reserve_bytes),
    });
}
