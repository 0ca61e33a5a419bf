//! Tool calls. A call is written when a tool is offered and asked for: by tool_choice, or by the user's words. Its form is
//! forced token by token (as constrained decoding does), its arguments come out of the user's words.

const std = @import("std");
const layout = @import("layout.zig");
const Prompt = @import("prompt.zig").Prompt;
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;
const Value = std.json.Value;
const Token = layout.Token;

pub const Tool = struct { name: []const u8, parameters: Value };

/// The tools of a request, in either chat form (`function` inside, or flat with `input_schema` or `parameters`).
pub fn offered(call: *Call, object: std.json.ObjectMap) Failure![]const Tool {
    const value = object.get("tools") orelse return &.{};
    if (value == .null) return &.{};
    if (value != .array) return call.bad("tools has to be a list", .{});
    var tools: std.ArrayList(Tool) = .empty;
    for (value.array.items) |entry| {
        if (entry != .object) return call.bad("a tool has to be an object", .{});
        const function = entry.object.get("function") orelse entry;
        if (function != .object) return call.bad("a tool's function has to be an object", .{});
        const name = function.object.get("name") orelse return call.bad("a tool lacks its name", .{});
        if (name != .string) return call.bad("a tool's name has to be a string", .{});
        const parameters = function.object.get("parameters") orelse function.object.get("input_schema") orelse Value.null;
        try tools.append(call.memory, .{ .name = name.string, .parameters = parameters });
    }
    return tools.items;
}

/// Tell the model which tools there are.
pub fn describe(call: *Call, prompt: *Prompt, tools: []const Tool) Failure!void {
    if (tools.len == 0) return;
    var text: std.ArrayList(u8) = .empty;
    try text.appendSlice(call.memory, "Tools:");
    for (tools) |tool| try text.print(call.memory, "\n{s} {f}", .{ tool.name, std.json.fmt(tool.parameters, .{}) });
    try prompt.turn(layout.system, text.items);
}

/// The tool that the reply has to call, if it has to call one.
pub fn chosen(call: *Call, object: std.json.ObjectMap, tools: []const Tool, prompt: *const Prompt) Failure!?Tool {
    const choice = object.get("tool_choice") orelse Value{ .string = "auto" };
    const mode = switch (choice) {
        .string => |given| given,
        .object => |given| if (nameIn(given)) |name| return try named(call, tools, name) else typeIn(given),
        .null => "auto",
        else => return call.bad("tool_choice has to be a string or an object", .{}),
    };
    if (tools.len == 0 or eql(mode, "none")) return null;
    if (eql(mode, "required") or eql(mode, "any")) return best(tools, prompt.question) orelse tools[0];
    if (!eql(mode, "auto")) return call.bad("tool_choice '{s}' is not one of none, auto, required", .{mode});
    return if (prompt.last_role == layout.user) best(tools, prompt.question) else null;
}

fn eql(left: []const u8, right: []const u8) bool {
    return std.mem.eql(u8, left, right);
}

fn typeIn(choice: std.json.ObjectMap) []const u8 {
    const kind = choice.get("type") orelse return "auto";
    return if (kind == .string) kind.string else "auto";
}

fn nameIn(choice: std.json.ObjectMap) ?[]const u8 {
    const holder = choice.get("function") orelse Value{ .object = choice };
    if (holder != .object) return null;
    const name = holder.object.get("name") orelse return null;
    return if (name == .string) name.string else null;
}

fn named(call: *Call, tools: []const Tool, name: []const u8) Failure!Tool {
    for (tools) |tool| if (eql(tool.name, name)) return tool;
    return call.bad("tool_choice names the tool '{s}', which is not offered", .{name});
}

/// The first tool that the question names, whole or by a word of four letters or more.
fn best(tools: []const Tool, question: []const u8) ?Tool {
    for (tools) |tool| if (mentions(question, tool.name)) return tool;
    for (tools) |tool| {
        var words = std.mem.tokenizeAny(u8, tool.name, "_- .");
        while (words.next()) |word| if (word.len >= 4 and mentions(question, word)) return tool;
    }
    return null;
}

/// The reply that calls a tool: a thought where thinking is on, then the call as "NAME, line end, ARGUMENTS".
pub fn forced(call: *Call, tool: Tool, question: []const u8, thinking: bool) Failure![]const Token {
    var tokens: std.ArrayList(Token) = .empty;
    if (thinking) {
        try bytes(call, &tokens, try std.fmt.allocPrint(call.memory, "I will call {s}.", .{tool.name}));
        try tokens.append(call.memory, layout.end_think);
    }
    try tokens.append(call.memory, layout.tool_call);
    try bytes(call, &tokens, tool.name);
    try bytes(call, &tokens, "\n");
    try bytes(call, &tokens, try arguments(call, tool.parameters, question));
    try tokens.append(call.memory, layout.end_tool_call);
    return tokens.items;
}

/// A call's text apart, as `forced` puts it together. A call that broke off may lack its arguments.
pub fn split(text: []const u8) struct { name: []const u8, arguments: []const u8 } {
    const at = std.mem.indexOfScalar(u8, text, '\n') orelse return .{ .name = text, .arguments = "" };
    return .{ .name = text[0..at], .arguments = text[at + 1 ..] };
}

fn bytes(call: *Call, tokens: *std.ArrayList(Token), text: []const u8) error{OutOfMemory}!void {
    for (try tokens.addManyAsSlice(call.memory, text.len), text) |*token, byte| token.* = byte;
}

/// A JSON object with every property of the schema.
fn arguments(call: *Call, schema: Value, question: []const u8) Failure![]const u8 {
    var object: std.json.ObjectMap = .empty;
    if (schema == .object) if (schema.object.get("properties")) |properties| if (properties == .object) {
        for (properties.object.keys(), properties.object.values()) |name, property| {
            try object.put(call.memory, name, try argument(call, property, question, object.count()));
        }
    };
    return call.json(Value{ .object = object });
}

fn argument(call: *Call, property: Value, question: []const u8, place: usize) Failure!Value {
    if (property != .object) return .null;
    if (property.object.get("enum")) |choices| if (choices == .array and choices.array.items.len > 0) {
        return pick(choices.array.items, question);
    };
    const kind = property.object.get("type") orelse return .{ .string = subject(question, place) };
    if (kind != .string) return .{ .string = subject(question, place) };
    if (eql(kind.string, "integer")) return .{ .integer = std.fmt.parseInt(i64, number(question, place), 10) catch 0 };
    if (eql(kind.string, "number")) return .{ .float = std.fmt.parseFloat(f64, number(question, place)) catch 0 };
    if (eql(kind.string, "boolean")) return .{ .bool = true };
    if (eql(kind.string, "array")) return .{ .array = .init(call.memory) };
    if (eql(kind.string, "object")) return .{ .object = .empty };
    return .{ .string = subject(question, place) };
}

fn pick(choices: []const Value, question: []const u8) Value {
    for (choices) |value| {
        if (value == .string and mentions(question, value.string)) return value;
    }
    return choices[0];
}

/// The run of digits numbered `place`, the last one when there are fewer, "0" when there is none.
fn number(question: []const u8, place: usize) []const u8 {
    var found: []const u8 = "0";
    var left = place + 1;
    var words = std.mem.tokenizeAny(u8, question, " ,;:!?()[]{}\"'*+/=\n");
    while (words.next()) |word| {
        const digits = std.mem.trim(u8, word, ".");
        if (digits.len == 0 or !std.ascii.isDigit(digits[0])) continue;
        found = digits;
        left -= 1;
        if (left == 0) break;
    }
    return found;
}

/// What the question is about: quoted text, else the last name (a word with a capital letter after the first), else its last
/// word.
fn subject(question: []const u8, place: usize) []const u8 {
    if (std.mem.indexOfScalar(u8, question, '"')) |from| {
        if (std.mem.indexOfScalarPos(u8, question, from + 1, '"')) |to| return question[from + 1 .. to];
    }
    var words = std.mem.tokenizeAny(u8, question, " ,;:!?.()[]\n");
    var last: []const u8 = words.next() orelse "";
    var name: ?[]const u8 = null;
    var first_name: ?[]const u8 = null;
    while (words.next()) |word| {
        last = word;
        if (!std.ascii.isUpper(word[0]) or word.len < 2) continue;
        name = word;
        if (first_name == null) first_name = word;
    }
    return if (place == 0) name orelse last else first_name orelse last;
}

fn mentions(question: []const u8, word: []const u8) bool {
    return std.ascii.findIgnoreCase(question, word) != null;
}
