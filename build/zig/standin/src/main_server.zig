//! tensorfold-native serve MODEL ...: rank 0, the API server and its part of the model.

const std = @import("std");
const sys = @import("sys.zig");
const net = @import("net.zig");
const inputs = @import("inputs.zig");
const memory = @import("memory.zig");
const options_ = @import("options.zig");
const pages = @import("pages.zig");
const rankfile = @import("rankfile.zig");
const routes = @import("routes.zig");
const Arena = @import("arena.zig").Arena;
const Board = @import("board.zig").Board;
const Environment = options_.Environment;
const Knobs = @import("knobs.zig").Knobs;
const Link = @import("link.zig").Link;
const Model = @import("model.zig").Model;
const Options = options_.Options;
const Scheduler = @import("scheduler.zig").Scheduler;
const Server = @import("server.zig").Server;
const Signals = @import("signals.zig").Signals;

/// Everything that one launch is told.
const Launch = struct { options: Options, environment: Environment, knobs: Knobs };

pub fn main(init: std.process.Init.Minimal) void {
    const options = options_.parse(sys.arguments(init.args));
    if (!sys.exists(sys.zero(options.model))) {
        sys.fail(1, "tensorfold: {s} is neither a directory nor a Hugging Face repo id", .{options.model});
    }
    const environment = options_.environment(init.environ);
    run(.{ .options = options, .environment = environment, .knobs = .read(init.environ) }) catch |problem| {
        sys.fail(1, "tensorfold: error.{s}", .{@errorName(problem)});
    };
}

/// Load, meet the other ranks, serve until a signal comes.
fn run(launch: Launch) !void {
    var signals = try Signals.block();
    (try std.Thread.spawn(.{ .stack_size = 1 << 20 }, Signals.watch, .{&signals})).detach();
    const api_key = try apiKey(launch.options);
    const address = hostAddress(launch.options);
    const loaded = try load(launch);
    var link = meet(launch.environment);
    const listener = listen(launch.options, address);
    var board = Board.init();
    var scheduler = try schedulerOf(launch, &loaded, &board, &link);
    var server = serverOf(launch, loaded, &board, api_key);
    signals.serving.store(&board, .release);
    (try std.Thread.spawn(.{ .stack_size = 1 << 20 }, routes.serve, .{ &server, listener })).detach();
    announceReady(server, scheduler.drafts > 0, loaded.took_s);
    try scheduler.run();
    signals.ended.notify();
    // The watching thread ends the process.
    while (true) sys.sleepNs(std.time.ns_per_s);
}

fn apiKey(options: Options) !?[]const u8 {
    const path = options.api_key_file orelse return options.api_key;
    const text = sys.readFile(sys.zero(path), 4096) catch |problem| {
        sys.fail(1, "tensorfold: cannot read the API key file {s}: error.{s}", .{ path, @errorName(problem) });
    };
    const key = std.mem.trim(u8, text, " \t\r\n");
    if (key.len == 0) sys.fail(1, "tensorfold: the API key file {s} is empty", .{path});
    return key;
}

fn hostAddress(options: Options) net.Address {
    const host = if (std.mem.eql(u8, options.host, "localhost")) "127.0.0.1" else options.host;
    return net.Address.parse(host, options.port) orelse
        sys.fail(1, "tensorfold: error.BadArgument: --host {s} is not an IPv4 address", .{options.host});
}

/// What loading gave, before any other rank is met.
const Loaded = struct { context: usize, room: memory.Room, model: Model, arena: Arena, took_s: f64 };

fn load(launch: Launch) !Loaded {
    const started = sys.nowNs();
    const environment = launch.environment;
    const window = try inputs.modelWindow(launch.options.model);
    const context = launch.options.context orelse window;
    try inputs.checkKit(environment.kit, environment.kernels, context);
    const file = try rankfile.open(environment.rank_cache, 0, environment.world);
    const room = checkMemory(launch, context, file.data_bytes + file.index_bytes + launch.knobs.load_bytes);
    const engram = try inputs.engram(environment.engram, environment.token_map);
    const model = try Model.load(file, 0, environment.world, engram);
    try launch.knobs.payLoad(started);
    announceMemory(launch.options, context, room);
    const took_s = sys.seconds(sys.nowNs() - started);
    const arena = try Arena.init(launch.knobs.pool orelse context, launch.knobs.bytes_per_token);
    return .{ .context = context, .room = room, .model = model, .arena = arena, .took_s = took_s };
}

/// Refuse weights that do not fit. Contexts are not counted: nobody knows yet how long they will be.
fn checkMemory(launch: Launch, context: usize, model_bytes: u64) memory.Room {
    const room = memory.room(launch.knobs.proc, launch.environment.reserve_gib, model_bytes) orelse
        sys.fail(1, "tensorfold: cannot read MemTotal and MemAvailable from {s}/meminfo", .{launch.knobs.proc});
    if (room.fits()) return room;
    sys.fail(1, "tensorfold: {d} x {d} on rank 0 leaves {d:.2} GiB, under the {d:.1} GiB hard floor; fit: 0 stream(s)", .{
        launch.options.parallel,
        context,
        memory.inGib(room.available_bytes -| model_bytes),
        memory.inGib(room.reserve_bytes),
    });
}

fn announceMemory(options: Options, context: usize, room: memory.Room) void {
    sys.log("[tensorfold] CUDA sm_121 device 0 (stand-in, memory shared with the host): model {d:.1} GiB; " ++
        "{d} streams at once, 0.00 GiB each at a {d}-token window, of {d:.1} GiB left after a {d:.1} GiB reserve; " ++
        "prompts in 2048-row chunks", .{
        memory.inGib(room.model_bytes), options.parallel, context, memory.inGib(room.left()), memory.inGib(room.reserve_bytes),
    });
}

fn meet(environment: Environment) Link {
    return Link.rendezvous(environment.master, environment.world) catch |problem| {
        sys.fail(1, "tensorfold: cannot listen for ranks on port {d}: error.{s}", .{
            environment.master.port, @errorName(problem),
        });
    };
}

fn listen(options: Options, address: net.Address) i32 {
    return net.listen(address) catch |problem| {
        sys.fail(1, "tensorfold: cannot listen on {s}:{d}: error.{s}", .{
            options.host, options.port, @errorName(problem),
        });
    };
}

fn schedulerOf(launch: Launch, loaded: *const Loaded, board: *Board, link: *Link) !Scheduler {
    const arena = loaded.arena;
    const kept_bytes: f64 = launch.options.prompt_cache_gib * memory.gib;
    const kept_pages: usize = @intFromFloat(kept_bytes / @as(f64, @floatFromInt(arena.stride)));
    return .{
        .board = board,
        .model = &loaded.model,
        .link = link,
        .arena = arena,
        .book = try pages.Book.init(arena.count, kept_pages),
        .knobs = launch.knobs,
        .parallel = launch.options.parallel,
        .drafts = if (launch.options.drafts) launch.environment.drafts else 0,
        .totals_dialect = launch.knobs.dialect == .totals,
    };
}

fn serverOf(launch: Launch, loaded: Loaded, board: *Board, api_key: ?[]const u8) Server {
    return .{
        .options = launch.options,
        .name = launch.options.name orelse std.fs.path.basename(launch.options.model),
        .api_key = api_key,
        .context = loaded.context,
        .world = launch.environment.world,
        .pages = loaded.arena.count,
        .page_bytes = loaded.arena.stride,
        .model_bytes = loaded.room.model_bytes,
        .knobs = launch.knobs,
        .board = board,
        .created_s = sys.wallS(),
    };
}

fn announceReady(server: Server, drafts: bool, took_s: f64) void {
    const options = server.options;
    sys.log("[tensorfold] serving {s} at http://{s}:{d}/v1 (sampling: temperature {d:.1}, top-p {d}, top-k {d}; drafts: {s}; " ++
        "context: {d}; loaded in {d:.1}s)", .{
        server.name,                 options.host,   options.port, options.temperature, options.top_p, options.top_k,
        if (drafts) "on" else "off", server.context, took_s,
    });
}
