#include "cursor.h"

#include <algorithm>
#include <cstring>

namespace sapwood {
namespace {

std::size_t exponent_digits(const Cursor& c) {
    std::string_view text = c.written();
    return text.size() - 1 - text.find_last_not_of("0123456789");
}

bool tracked(const FramePtr& frame) {
    return frame && (frame->tracked || (frame->plan->array && frame->plan->array->unique));
}

}  // namespace

Cursor Json::start() {
    Cursor c;
    c.roots = roots_;
    if (!raw_) return c;
    c.mode = Mode::Raw;
    c.plan = &schema.plan(roots_, Kind::Text);
    c.at = c.text().start();
    return c;
}

bool Json::may_end(const Cursor& c) {
    if (c.mode == Mode::Raw) return c.text().may_close(c.at);
    if (c.mode == Mode::Number && !c.frame) return complete(c.digits) && c.plan->number->may_close(c.written());
    return c.mode == Mode::End;
}

bool Json::blank(Cursor& c, std::uint8_t byte) {
    if (schema.layout.compact || c.blanks >= kMaxBlanks) return false;
    if (byte != ' ' && byte != '\n' && byte != '\t' && byte != '\r') return false;
    if (!c.frame) return false;
    bool allowed = c.mode == Mode::Value || c.mode == Mode::FirstItem || c.mode == Mode::FirstKey ||
                   c.mode == Mode::NextKey || c.mode == Mode::After;
    if (!allowed) return false;
    // Blanks before a comma or a closing bracket: only the latter, and only if it may come.
    if (c.mode == Mode::After && c.blanks == 0) {
        Cursor closing = c;
        if (!end_container(closing)) return false;
    }
    ++c.blanks;
    return true;
}

bool Json::step(Cursor& c, std::uint8_t byte) {
    ++c.position;
    if (c.mode == Mode::Raw) return c.text().step(c.at, byte) && text_live(c, c.at);
    if (c.mode == Mode::Text || c.mode == Mode::Key) return c.escape ? step_escape(c, byte) : step_text(c, byte);
    if (c.mode == Mode::Literal) {
        if (*c.literal != static_cast<char>(byte)) return false;
        if (*++c.literal) return true;
        std::vector<Tri> verdicts;
        c.plan->evaluate({}, verdicts);
        return finish(c, verdicts, 1 + static_cast<int>(c.plan->kind));
    }
    if (c.mode == Mode::Number) return step_number(c, byte);
    if (blank(c, byte)) return true;
    std::uint8_t blanks = std::exchange(c.blanks, 0);
    switch (c.mode) {
        case Mode::FirstItem:
            if (byte == ']') return end_container(c);
            c.roots = c.frame->child;
            return c.roots && begin_value(c, byte);
        case Mode::Value: return begin_value(c, byte);
        case Mode::FirstKey:
            if (byte == '}') return end_container(c);
            [[fallthrough]];
        case Mode::NextKey:
            if (byte != '"' || !any_key(c)) return false;
            c.mode = Mode::Key;
            c.at = c.text().start();
            c.digest = kTextSeed;
            c.key_begin = c.position;
            return true;
        case Mode::Colon: c.mode = Mode::Value; return byte == ':';
        case Mode::After: return (blanks == 0 || byte != ',') && step_after(c, byte);
        default: return false;
    }
}

bool Json::any_key(const Cursor& c) {
    const Frame& frame = *c.frame;
    for (int key = 0; key < frame.plan->object->num_keys(); ++key)
        if (open_key(schema, frame, key)) return true;
    return other_key_live(schema, frame, frame.plan->object->text->start());
}

bool Json::begin_value(Cursor& c, std::uint8_t byte) {
    switch (byte) {
        case '{': return begin_container(c, Kind::Object);
        case '[': return begin_container(c, Kind::Array);
        case '"': return begin_text(c);
        case 't': return begin_literal(c, Kind::True, "rue");
        case 'f': return begin_literal(c, Kind::False, "alse");
        case 'n': return begin_literal(c, Kind::Null, "ull");
        default: break;
    }
    if (byte != '-' && (byte < '0' || byte > '9')) return false;
    c.plan = &schema.plan(c.roots, Kind::Number);
    if (c.plan->impossible()) return false;
    c.mode = Mode::Number;
    c.digits = Digits::Start;
    c.size = 0;
    return step_number(c, byte);
}

bool Json::begin_container(Cursor& c, Kind kind) {
    if (c.roots->must && !schema.satisfiable(c.roots, kind)) return false;
    const Plan& plan = schema.plan(c.roots, kind);
    int depth = 0;
    for (const Frame* frame = c.frame.get(); frame; frame = frame->parent.get()) ++depth;
    if (depth >= kMaxDepth) return false;
    FramePtr frame = open_container(plan, c.frame);
    if (!c.roots->must && !admissible(schema, *frame)) return false;
    c.mode = kind == Kind::Object ? Mode::FirstKey : Mode::FirstItem;
    if (kind == Kind::Array)
        if (FramePtr first = open_item(schema, *frame)) frame = std::move(first);
    c.frame = std::move(frame);
    return true;
}

bool Json::begin_text(Cursor& c) {
    if (c.roots->must && !schema.satisfiable(c.roots, Kind::Text)) return false;
    c.plan = &schema.plan(c.roots, Kind::Text);
    c.mode = Mode::Text;
    c.at = c.text().start();
    c.digest = kTextSeed;
    return text_live(c, c.at);
}

bool Json::begin_literal(Cursor& c, Kind kind, const char* rest) {
    c.plan = &schema.plan(c.roots, kind);
    if (c.plan->impossible()) return false;
    c.mode = Mode::Literal;
    c.literal = rest;
    if (c.roots->must && !tracked(c.frame)) return true;
    Cursor end = c;
    std::vector<Tri> verdicts;
    c.plan->evaluate({}, verdicts);
    return finish(end, verdicts, 1 + static_cast<int>(kind));
}

bool Json::text_live(const Cursor& c, const TextState& at) {
    TextSpec& text = c.text();
    if (c.mode == Mode::Key) {
        ObjectSpec& object = *c.frame->plan->object;
        for (int listed = at.lo; listed < at.hi; ++listed)
            if (open_key(schema, *c.frame, object.listed_key(listed))) return true;
        return other_key_live(schema, *c.frame, at);
    }
    if (c.plan->roots->must) {
        bool once = c.frame && !c.frame->items.empty() && text.only_list && c.mode == Mode::Text;
        return once ? fresh_listed(c, at) : text.may_go_on(at) || text.may_close(at);
    }
    if (c.plan->atoms.empty() && at.depth > 0) return true;
    std::vector<Tri> values, verdicts;
    text.atoms(at, false, values);
    c.plan->evaluate(values, verdicts);
    return consult(schema, c.frame.get(), c.plan->roots, verdicts);
}

// Whether a listed text that is not an item already may still come.
bool Json::fresh_listed(const Cursor& c, const TextState& at) {
    const std::vector<std::uint64_t>& items = c.frame->items;
    for (int i = at.lo; i < at.hi; ++i) {
        if (!c.text().listed_ok(i)) continue;
        std::uint64_t digest = kTextSeed;
        for (char ch : c.text().list.texts[i]) digest = extend_digest(digest, static_cast<std::uint8_t>(ch));
        if (!std::binary_search(items.begin(), items.end(), digest)) return true;
    }
    return false;
}

bool Json::strict(const Cursor& c) {
    TextSpec& text = c.text();
    return !text.list.texts.empty() || text.product.num_parts() > 1;
}

bool Json::wants_digest(const Cursor& c) {
    return tracked(c.frame) || (c.mode == Mode::Key && !c.frame->others.empty());
}

bool Json::step_text(Cursor& c, std::uint8_t byte) {
    if (byte == '"') return c.mode == Mode::Key ? end_key(c) : end_text(c);
    if (byte < 0x20) return false;
    if (byte == '\\') {
        if (!c.text().product.whole(c.at.state) || !escape_live(c)) return false;
        c.escape = escape::Backslash;
        return true;
    }
    c.digest = extend_digest(c.digest, byte);
    return c.text().step(c.at, byte) && text_live(c, c.at);
}

bool Json::end_key(Cursor& c) {
    ObjectSpec& object = *c.frame->plan->object;
    if (!object.text->product.whole(c.at.state)) return false;
    int key = object.known(c.at);
    FramePtr next;
    if (key >= 0) next = open_key(schema, *c.frame, key);
    else next = open_other_key(schema, *c.frame, object.of_text(c.at), {c.digest, c.key_begin, c.position - 1});
    if (!next) return false;
    if (next->tracked) {  // the digest of the key is wanted: this frame is not the one kept for the key
        next = FramePtr(new Frame(*next));
        next->key_digest = c.digest;
    }
    c.frame = std::move(next);
    c.roots = c.frame->child;
    c.mode = Mode::Colon;
    return true;
}

bool Json::end_text(Cursor& c) {
    TextSpec& text = c.text();
    std::vector<Tri> verdicts;
    if (c.plan->roots->must) {
        if (!text.may_close(c.at)) return false;
        verdicts.assign(1, Tri::Yes);
    } else {
        if (!text.product.whole(c.at.state)) return false;
        std::vector<Tri> values;
        text.atoms(c.at, true, values);
        c.plan->evaluate(values, verdicts);
    }
    return finish(c, verdicts, c.digest);
}

bool Json::number_live(const Cursor& c) {
    if (c.plan->atoms.empty() && c.plan->roots->must) return true;
    if (c.plan->roots->must) return c.plan->number->may_go_on(c.written(), c.digits);
    std::vector<Tri> values, verdicts;
    c.plan->number->atoms(c.written(), c.digits, false, values);
    c.plan->evaluate(values, verdicts);
    return consult(schema, c.frame.get(), c.plan->roots, verdicts);
}

bool Json::step_number(Cursor& c, std::uint8_t byte) {
    Digits next = c.digits;
    if (step_digits(next, static_cast<char>(byte))) {
        if (c.size == NumberSpec::kMaxSize ||
            (next == Digits::Exponent && exponent_digits(c) == NumberSpec::kMaxExponent))
            return false;
        c.number[c.size++] = static_cast<char>(byte);
        c.digits = next;
        return (next != Digits::Exponent || fits_a_double(c.written())) && number_live(c);
    }
    if (!complete(c.digits) || !end_number(c)) return false;
    --c.position;
    return step(c, byte);
}

bool Json::end_number(Cursor& c) {
    std::vector<Tri> verdicts;
    if (c.plan->roots->must) {
        if (!c.plan->number->may_close(c.written())) return false;
        verdicts.assign(1, Tri::Yes);
    } else {
        std::vector<Tri> values;
        c.plan->number->atoms(c.written(), c.digits, true, values);
        c.plan->evaluate(values, verdicts);
    }
    std::uint64_t digest = 17;
    if (tracked(c.frame))
        for (char ch : parse_decimal(c.written()).canonical()) digest = extend_digest(digest, ch);
    return finish(c, verdicts, digest);
}

bool Json::step_after(Cursor& c, std::uint8_t byte) {
    if (!c.frame) return false;
    bool object = c.frame->plan->kind == Kind::Object;
    if (byte == (object ? '}' : ']')) return end_container(c);
    if (byte != ',') return false;
    if (object) {
        c.mode = Mode::NextKey;
        return any_key(c);
    }
    c.frame = open_item(schema, *c.frame);
    if (!c.frame) return false;
    c.roots = c.frame->child;
    c.mode = Mode::Value;
    return true;
}

bool Json::end_container(Cursor& c) {
    FramePtr frame = c.frame;
    std::vector<Tri> verdicts;
    close_container(schema, *frame, verdicts);
    if (frame->plan->roots->must && verdicts[0] != Tri::Yes) return false;
    c.frame = frame->parent;
    c.blanks = 0;
    return finish(c, verdicts, mix(frame->digest, 3));
}

bool Json::finish(Cursor& c, const std::vector<Tri>& verdicts, std::uint64_t digest) {
    if (!c.frame) {
        c.mode = Mode::End;
        return verdicts[0] == Tri::Yes;
    }
    c.frame = close_child(schema, *c.frame, verdicts, digest);
    c.mode = Mode::After;
    return static_cast<bool>(c.frame);
}

std::uint64_t Json::hash(const Cursor& c) {
    std::uint64_t h = c.frame ? c.frame->hash : 2;
    h = mix(h, static_cast<std::uint64_t>(c.mode) << 16 | c.blanks << 8 | c.escape);
    if (c.mode == Mode::Value) return mix(h, reinterpret_cast<std::uintptr_t>(c.roots));
    if (c.in_text()) {
        bool listed = c.at.lo < c.at.hi;
        h = mix(h, reinterpret_cast<std::uintptr_t>(c.mode == Mode::Key ? nullptr : c.plan));
        h = mix(h, static_cast<std::uint64_t>(c.at.state) << 32 | static_cast<std::uint32_t>(c.at.chars));
        if (listed)
            h = mix(h,
                    static_cast<std::uint64_t>(c.at.lo) << 40 | static_cast<std::uint64_t>(c.at.hi) << 20 | c.at.depth);
        if (c.escape) h = mix(h, static_cast<std::uint64_t>(c.unit) << 16 | c.high);
        if (wants_digest(c)) h = mix(h, c.digest);
    }
    if (c.mode == Mode::Number) {
        h = mix(h, reinterpret_cast<std::uintptr_t>(c.plan));
        for (char ch : c.written()) h = mix(h, static_cast<std::uint8_t>(ch));
    }
    if (c.mode == Mode::Literal) h = mix(h, static_cast<std::uint64_t>(c.plan->kind) << 8 | std::strlen(c.literal));
    return h;
}

}  // namespace sapwood
