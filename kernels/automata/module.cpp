// The Python face of the automata. Python describes a schema node by node; the rest happens here.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "matcher.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace sapwood;

namespace {

using Words = nb::ndarray<std::uint32_t, nb::shape<-1>, nb::device::cpu, nb::c_contig>;

std::string to_string(nb::bytes bytes) { return {bytes.c_str(), bytes.size()}; }
nb::bytes to_bytes(const std::string& s) { return nb::bytes(s.data(), s.size()); }

// Regular expressions, node by node; children before parents.
struct RegexBuilder {
    RegexTree tree;

    int add(RegexNode node) {
        tree.push_back(std::move(node));
        return static_cast<int>(tree.size()) - 1;
    }
};

struct Stop {
    std::shared_ptr<std::atomic<bool>> flag = std::make_shared<std::atomic<bool>>(false);
};

struct SchemaBuilder {
    std::shared_ptr<Schema> schema;

    SchemaBuilder(bool compact, bool any_order, std::size_t max_bytes)
        : schema(std::make_shared<Schema>(Layout{compact, any_order}, max_bytes)) {}

    int combine(Assert what, std::vector<int> children) {
        Node node{what};
        node.children = std::move(children);
        return schema->add(std::move(node));
    }
    int count(Assert what, long n) {
        Node node{what};
        node.count = n;
        return schema->add(std::move(node));
    }
    int number(Assert what, const std::string& text) {
        Node node{what};
        node.numbers = {parse_decimal(text)};
        return schema->add(std::move(node));
    }
};

void bind_regex(nb::module_& m) {
    nb::class_<RegexBuilder>(m, "RegexBuilder", "A regular expression over code points; every method returns a node.")
        .def(nb::init<>())
        .def(
            "set", [](RegexBuilder& b, CodePoints points) { return b.add({Regex::Set, std::move(points), {}}); },
            "ranges"_a)
        .def(
            "cat", [](RegexBuilder& b, std::vector<int> nodes) { return b.add({Regex::Cat, {}, std::move(nodes)}); },
            "nodes"_a)
        .def(
            "alt", [](RegexBuilder& b, std::vector<int> nodes) { return b.add({Regex::Alt, {}, std::move(nodes)}); },
            "nodes"_a)
        .def(
            "repeat",
            [](RegexBuilder& b, int node, int min, int max) { return b.add({Regex::Repeat, {}, {node}, min, max}); },
            "node"_a, "min"_a, "max"_a, "`max` -1: unbounded.")
        .def("begin", [](RegexBuilder& b) { return b.add({Regex::Begin, {}, {}}); })
        .def("end", [](RegexBuilder& b) { return b.add({Regex::End, {}, {}}); })
        .def(
            "look",
            [](RegexBuilder& b, int node, bool behind, bool negative) {
                return b.add({Regex::Look, {}, {node}, 0, 0, behind, negative});
            },
            "node"_a, "behind"_a, "negative"_a);
}

void bind_asserts(nb::module_& m) {
    nb::enum_<Assert>(m, "Assert", "What a node of a schema asserts.")
        .value("Yes", Assert::Yes)
        .value("No", Assert::No)
        .value("All", Assert::All)
        .value("Any", Assert::Any)
        .value("Not", Assert::Not)
        .value("One", Assert::One)
        .value("MinLength", Assert::MinLength)
        .value("MaxLength", Assert::MaxLength)
        .value("Minimum", Assert::Minimum)
        .value("AboveMinimum", Assert::AboveMinimum)
        .value("Maximum", Assert::Maximum)
        .value("BelowMaximum", Assert::BelowMaximum)
        .value("MultipleOf", Assert::MultipleOf)
        .value("MinProperties", Assert::MinProperties)
        .value("MaxProperties", Assert::MaxProperties)
        .value("MinItems", Assert::MinItems)
        .value("MaxItems", Assert::MaxItems)
        .value("Unique", Assert::Unique);

    nb::class_<Evaluator>(m, "Evaluator", "Keys or items that count as evaluated where a node holds (-1: always).")
        .def(
            "__init__",
            [](Evaluator* e, int condition, std::vector<std::string> keys, std::vector<int> patterns, long items,
               bool all, int contains) {
                new (e) Evaluator{condition, std::move(keys), std::move(patterns), items, all, contains};
            },
            "condition"_a, "keys"_a, "patterns"_a, "items"_a, "all"_a, "contains"_a);
}

void bind_schema(nb::module_& m) {
    nb::class_<Stop>(m, "Stop", "Ends a compile from another thread.")
        .def(nb::init<>())
        .def("set", [](Stop& stop) { *stop.flag = true; })
        .def("is_set", [](const Stop& stop) { return stop.flag->load(); });

    nb::class_<SchemaBuilder>(m, "SchemaBuilder", "A schema, node by node; every method returns a node's number.")
        .def(nb::init<bool, bool, std::size_t>(), "compact"_a, "any_order"_a, "max_bytes"_a)
        .def(
            "start_clock",
            [](SchemaBuilder& b, double seconds, const Stop& stop) { b.schema->budget.start(seconds, stop.flag); },
            "seconds"_a, "stop"_a)
        .def(
            "pattern_source",
            [](SchemaBuilder& b, const RegexBuilder& regex, int root, bool search) {
                return b.schema->add_pattern({regex.tree, root, search ? Span::Search : Span::Whole});
            },
            "regex"_a, "root"_a, "search"_a, "A pattern, for the methods that take patterns.")
        .def(
            "reserve", [](SchemaBuilder& b) { return b.combine(Assert::Ref, {0}); }, "A node to be bound later.")
        .def(
            "bind", [](SchemaBuilder& b, int node, int target) { b.schema->bind(node, target); }, "node"_a, "target"_a)
        .def(
            "find_cycle", [](SchemaBuilder& b) { return b.schema->find_cycle(); },
            "A node that applies to itself; -1: none.")
        .def("combine", &SchemaBuilder::combine, "what"_a, "nodes"_a)
        .def("count", &SchemaBuilder::count, "what"_a, "n"_a)
        .def("number", &SchemaBuilder::number, "what"_a, "text"_a)
        .def(
            "type",
            [](SchemaBuilder& b, int kinds) {
                Node node{Assert::Type};
                node.kinds = static_cast<std::uint8_t>(kinds);
                return b.schema->add(std::move(node));
            },
            "kinds"_a, "A bit for each of object, array, text, number, true, false, null.")
        .def(
            "integer", [](SchemaBuilder& b, bool spelled) { return b.count(Assert::Integer, spelled); }, "spelled"_a,
            "`spelled`: 1.0 is not an integer.")
        .def(
            "pattern",
            [](SchemaBuilder& b, int pattern) {
                Node node{Assert::Pattern};
                node.patterns = {pattern};
                return b.schema->add(std::move(node));
            },
            "pattern"_a)
        .def(
            "in_texts",
            [](SchemaBuilder& b, std::vector<std::string> texts) {
                Node node{Assert::InTexts};
                node.texts = std::move(texts);
                return b.schema->add(std::move(node));
            },
            "texts"_a)
        .def(
            "in_numbers",
            [](SchemaBuilder& b, const std::vector<std::string>& spellings) {
                Node node{Assert::InNumbers};
                for (const std::string& text : spellings) node.numbers.push_back(parse_decimal(text));
                node.spellings = spellings;
                return b.schema->add(std::move(node));
            },
            "spellings"_a)
        .def(
            "has",
            [](SchemaBuilder& b, std::string key, bool otherwise) {
                Node node{Assert::Has};
                node.texts = {std::move(key)};
                node.otherwise = otherwise;
                return b.schema->add(std::move(node));
            },
            "key"_a, "otherwise"_a, "`otherwise`: the verdict on values that are no objects.")
        .def(
            "properties",
            [](SchemaBuilder& b, std::vector<std::string> keys, std::vector<int> patterns, std::vector<int> nodes,
               int rest) {
                Node node{Assert::Properties};
                node.texts = std::move(keys);
                node.patterns = std::move(patterns);
                node.children = std::move(nodes);
                node.other = rest;
                return b.schema->add(std::move(node));
            },
            "keys"_a, "patterns"_a, "nodes"_a, "rest"_a, "`rest` -1: anything.")
        .def(
            "names", [](SchemaBuilder& b, int name) { return b.combine(Assert::Names, {name}); }, "node"_a)
        .def(
            "items",
            [](SchemaBuilder& b, std::vector<int> first, int rest) {
                Node node{Assert::Items};
                node.children = std::move(first);
                node.other = rest;
                return b.schema->add(std::move(node));
            },
            "first"_a, "rest"_a, "`rest` -1: anything.")
        .def(
            "contains",
            [](SchemaBuilder& b, int item, long min, long max) {
                Node node{Assert::Contains};
                node.children = {item};
                node.count = min;
                node.limit = max;
                return b.schema->add(std::move(node));
            },
            "node"_a, "min"_a, "max"_a, "`max` -1: any number.")
        .def(
            "unevaluated",
            [](SchemaBuilder& b, bool properties, int node_id, std::vector<Evaluator> evaluators) {
                Node node{properties ? Assert::UnevaluatedProperties : Assert::UnevaluatedItems};
                node.other = node_id;
                node.evaluators = std::move(evaluators);
                return b.schema->add(std::move(node));
            },
            "properties"_a, "node"_a, "evaluators"_a)
        .def(
            "satisfiable",
            [](SchemaBuilder& b, int node) { return b.schema->satisfiable(b.schema->roots({node}, true)); }, "node"_a,
            nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

NB_MODULE(_grammar, m) {
    m.doc() = "Byte automata: schemas and regular expressions, followed byte by byte, and masks over a vocabulary.";
    nb::register_exception_translator([](const std::exception_ptr& p, void*) {
        try {
            std::rethrow_exception(p);
        } catch (const OverBudget& e) {
            PyErr_SetString(PyExc_MemoryError, e.what());
        }
    });
    bind_regex(m);
    bind_asserts(m);
    bind_schema(m);

    nb::class_<Vocabulary>(m, "Vocabulary", "Tokens as a tree of bytes.")
        .def(
            "__init__",
            [](Vocabulary* v, const std::vector<nb::bytes>& tokens, int vocab_size, std::vector<int> eos) {
                std::vector<std::string> all;
                for (const nb::bytes& token : tokens) all.push_back(to_string(token));
                new (v) Vocabulary(std::move(all), vocab_size, std::move(eos));
            },
            "tokens"_a, "vocab_size"_a, "eos"_a)
        .def_ro("longest_bytes", &Vocabulary::longest_bytes);

    nb::class_<Grammar>(m, "Grammar", "A schema, or a text without JSON around it (`raw`), for a vocabulary.")
        .def(
            "__init__",
            [](Grammar* g, const SchemaBuilder& b, int root, bool raw, std::shared_ptr<Vocabulary> vocabulary) {
                new (g) Grammar(b.schema, root, raw, std::move(vocabulary));
            },
            "schema"_a, "root"_a, "raw"_a, "vocabulary"_a)
        .def(
            "start_clock", [](Grammar& g, double seconds) { g.schema->budget.start(seconds); }, "seconds"_a)
        .def_prop_ro("num_bytes", [](const Grammar& g) { return g.schema->budget.bytes(); });

    nb::class_<Matcher>(m, "Matcher", "Follows one text.")
        .def(nb::init<std::shared_ptr<Grammar>>(), "grammar"_a)
        .def(
            "fill_mask", [](Matcher& self, Words words) { self.fill_mask(words.data()); }, nb::arg("words").noconvert())
        .def("advance", &Matcher::advance, "id"_a)
        .def(
            "advance_bytes", [](Matcher& self, nb::bytes bytes) { return self.advance_bytes(to_string(bytes)); },
            "bytes"_a)
        .def("rollback", &Matcher::rollback, "n"_a)
        .def(
            "forced", [](Matcher& self, int most) { return to_bytes(self.forced(most)); }, "most"_a)
        .def("allowed_bytes", &Matcher::allowed_bytes)
        .def("committed",
             [](Matcher& self) {
                 std::vector<std::pair<std::vector<int>, std::vector<nb::bytes>>> out;
                 for (Committed& c : self.committed()) {
                     auto& ways = out.emplace_back(std::move(c.tokens), std::vector<nb::bytes>{}).second;
                     for (const std::string& way : c.ways) ways.push_back(to_bytes(way));
                 }
                 return out;
             })
        .def("in_text", &Matcher::in_text)
        .def("toward_end", &Matcher::toward_end)
        .def(
            "extends",
            [](Matcher& self, nb::bytes bytes, nb::bytes tail) {
                return self.extends(to_string(bytes), to_string(tail));
            },
            "bytes"_a, "tail"_a)
        .def("may_end", &Matcher::may_end)
        .def("is_done", &Matcher::is_done)
        .def("size", &Matcher::size)
        .def(
            "text_from", [](const Matcher& self, int token) { return to_bytes(self.text_from(token)); }, "token"_a)
        .def("place", &Matcher::place);
}
