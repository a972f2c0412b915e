#include "plain_bind.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>

#include "pack.h"
#include "pack_formats.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sapwood {
namespace {

using Bytes2 = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Codes = nb::ndarray<int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// weight = code * scale[k / group] + offset[k / group]; the offset is 0 where the format has a zero point.
void plain_codes(const std::string& format_name, Bytes2 rows, Codes codes, Floats2 scale, Floats2 offset) {
    const Format format = format_from_name(format_name);
    const Layout layout = layout_of(format);
    if (layout.is_bf16()) throw std::invalid_argument("float formats have no codes");
    const size_t out = codes.shape(0), in = codes.shape(1), groups = in / size_t(layout.group);
    if (rows.shape(0) != out || rows.shape(1) != format_row_bytes(format, int64_t(in)) || scale.shape(0) != out ||
        scale.shape(1) != groups || offset.shape(0) != out || offset.shape(1) != groups)
        throw std::invalid_argument("the arrays' shapes don't fit");
    const BlockShape shape = block_shape(format);
    const DecodeBlock decode = decoder_of(format);
    nb::gil_scoped_release unlocked;
    PlainUnit unit;
    std::fill(std::begin(unit.scale), std::end(unit.scale), int8_t(1));
    std::fill(std::begin(unit.offset), std::end(unit.offset), int8_t(1));
    for (size_t row = 0; row < out; ++row) {
        const uint8_t* block = rows.data() + row * rows.shape(1);
        for (size_t at = 0; at < in; at += size_t(shape.inputs), block += shape.bytes) {
            decode(block, unit);
            const float scale1 = half_to_float(unit.scale_level1), offset1 = half_to_float(unit.offset_level1);
            for (int k = 0; k < shape.inputs; ++k)
                codes.data()[row * in + at + size_t(k)] = int8_t(int(unit.q[k]) - layout.zero());
            for (int g = 0; g < shape.inputs / layout.group; ++g) {
                const size_t to = row * groups + at / size_t(layout.group) + size_t(g);
                scale.data()[to] = layout.two_level ? scale1 * float(unit.scale[g]) : scale1;
                offset.data()[to] = !layout.has_offset ? 0.0f : layout.two_level ? offset1 * float(unit.offset[g]) : offset1;
            }
        }
    }
}

}  // namespace

void bind_plain(nb::module_& m) {
    m.def(
        "code_layout",
        [](const std::string& format_name) {
            const Layout layout = layout_of(format_from_name(format_name));
            return nb::make_tuple(layout.bits, layout.group, layout.has_offset);
        },
        "format"_a, "(bits, group, has_offset) of an integer format; bits 16 for float formats.");
    m.def("plain_codes", &plain_codes, "format"_a, "rows"_a.noconvert(), "codes"_a.noconvert(), "scale"_a.noconvert(),
          "offset"_a.noconvert(),
          "Fill codes int8 [out, in], scale and offset float32 [out, in / group] from encoded rows: "
          "weight = code * scale + offset.");
}

}  // namespace sapwood
