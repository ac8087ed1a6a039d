package expression

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"clusterctl/daemons/kinds/quantity"
)

// bound returns the result of a call whose evaluation takes long, or nil if the function itself may be called.
type bound func(args []ref.Val) ref.Val

// bounds lists the functions that take more than linear time, or return much more than they are given, by name and
// overload. The library adds the cost of a call only after the call.
var bounds = map[string]map[string]bound{
	"quantity":        {"string_to_quantity": refuseHugeQuantity},
	"isQuantity":      {"is_quantity_string": hugeIsNoQuantity},
	"sets.contains":   {"list_sets_contains_list": compareLists(1)},
	"sets.intersects": {"list_sets_intersects_list": compareLists(1)},
	"sets.equivalent": {"list_sets_equivalent_list": compareLists(2)},
	"distinct":        {"list_distinct": compareItems},
	"find":            {"string_find_string": matchText},
	"findAll":         {"string_find_all_string": matchText, "string_find_all_string_int": matchText},
	"indexOf":         {"string_index_of_string": indexOf, "string_index_of_string_int": indexOf},
	"lastIndexOf":     {"string_last_index_of_string": lastIndexOf, "string_last_index_of_string_int": lastIndexOf},
	"join":            {"list_join": boundJoin, "list_join_string": boundJoin},
	"replace":         {"string_replace_string_string": boundReplace, "string_replace_string_string_int": boundReplace},
	"format":          {overloads.ExtFormatString: boundFormat},
}

func refuseHugeQuantity(args []ref.Val) ref.Val {
	if text, ok := args[0].(types.String); ok && quantity.IsHuge(string(text)) {
		return types.WrapErr(quantity.Err)
	}
	return nil
}

// hugeIsNoQuantity answers false, because isQuantity reports whether quantity returns no error.
func hugeIsNoQuantity(args []ref.Val) ref.Val {
	if text, ok := args[0].(types.String); ok && quantity.IsHuge(string(text)) {
		return types.False
	}
	return nil
}

// spend ends the evaluation if a call costs more than all of an expression may cost. The library would end it in the
// same way after the call. Functions return errors to operators, which may ignore them, so a panic is the only way.
func spend(cost float64) {
	if cost > celconfig.PerCallLimit {
		panic(interpreter.EvalCancelledError{
			Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded",
		})
	}
}

// sizeOf returns the number of items of a list, or of characters of a text.
func sizeOf(v ref.Val) float64 {
	if sizer, ok := v.(traits.Sizer); ok {
		if size, ok := sizer.Size().(types.Int); ok {
			return float64(size)
		}
	}
	return 1
}

// compareLists bounds functions that compare each item of a list with each of another.
func compareLists(times float64) bound {
	return func(args []ref.Val) ref.Val {
		spend(times * sizeOf(args[0]) * sizeOf(args[1]))
		return nil
	}
}

// compareItems bounds a function that compares the items of a list with each other.
func compareItems(args []ref.Val) ref.Val {
	spend(2 * sizeOf(args[0]) * sizeOf(args[0]))
	return nil
}

// matchText bounds functions that match a text with a regular expression.
func matchText(args []ref.Val) ref.Val {
	spend(math.Ceil((1+sizeOf(args[0]))*common.StringTraversalCostFactor) *
		math.Ceil(sizeOf(args[1])*common.RegexStringLengthCostFactor))
	return nil
}

// boundMatches bounds the function matches, which cannot be redefined. Regular expressions that are part of the
// expression are compiled once, and take linear time.
func boundMatches(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || call.Function() != overloads.Matches || len(call.Args()) != 2 {
		return i, nil
	}
	if _, isConstant := call.Args()[1].(interpreter.InterpretableConst); isConstant {
		return i, nil
	}
	match := func(args ...ref.Val) ref.Val {
		matcher, ok := args[0].(traits.Matcher)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		matchText(args)
		return matcher.Match(args[1])
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), match), nil
}

// boundJoin bounds the length of the joined text.
func boundJoin(args []ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	size := 0.0
	if len(args) > 1 {
		size = sizeOf(args[1]) * max(sizeOf(list)-1, 0)
	}
	for items := list.Iterator(); items.HasNext() == types.True; {
		size += sizeOf(items.Next())
	}
	spend(math.Ceil(size * 2 * common.StringTraversalCostFactor))
	return nil
}

// maxText is the length, in bytes, of the longest text that a function returns if the library does not bound it. A
// joined text has about the same limit.
const maxText = 5_000_000

// boundReplace bounds the length of the text after replacements.
func boundReplace(args []ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	old, isOld := args[1].(types.String)
	replacement, isNew := args[2].(types.String)
	if !isText || !isOld || !isNew || len(replacement) <= len(old) {
		return nil
	}
	count := strings.Count(string(text), string(old))
	if len(args) > 3 {
		if limit, ok := args[3].(types.Int); ok && limit >= 0 {
			count = int(min(int64(count), int64(limit)))
		}
	}
	if float64(len(text))+float64(count)*float64(len(replacement)-len(old)) > maxText {
		return types.NewErr("replace: the text after the replacements has more than %d bytes", maxText)
	}
	return nil
}

// maxPrecision is the largest number of digits after the point of a formatted number.
const maxPrecision = 100

// boundFormat bounds the precision of numbers.
func boundFormat(args []ref.Val) ref.Val {
	format, ok := args[0].(types.String)
	if !ok {
		return nil
	}
	for _, clause := range strings.Split(strings.ReplaceAll(string(format), "%%", ""), "%.")[1:] {
		digits := len(clause) - len(strings.TrimLeft(clause, "0123456789"))
		precision, err := strconv.Atoi(clause[:digits])
		if precision > maxPrecision || errors.Is(err, strconv.ErrRange) {
			return types.NewErr("format: a number has more than %d digits after the point", maxPrecision)
		}
	}
	return nil
}

// texts returns the first two arguments as texts of valid characters.
func texts(args []ref.Val) (text, part string, ok bool) {
	a, isText := args[0].(types.String)
	b, isPart := args[1].(types.String)
	return validText(string(a)), validText(string(b)), isText && isPart
}

// validText returns a text with a replacement character for each invalid byte, as the library compares it.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

// indexOf is the function of the library in linear time. The library compares at every character.
func indexOf(args []ref.Val) ref.Val {
	text, part, ok := texts(args)
	from := types.Int(0)
	if len(args) > 2 {
		var isInt bool
		from, isInt = args[2].(types.Int)
		ok = ok && isInt
	}
	if !ok || from < 0 || part == "" {
		return nil
	}
	start := byteIndex(text, from)
	if start >= len(text) {
		return types.Int(-1)
	}
	found := strings.Index(text[start:], part)
	if found < 0 {
		return types.Int(-1)
	}
	return from + types.Int(utf8.RuneCountInString(text[start:start+found]))
}

// lastIndexOf is the function of the library in linear time.
func lastIndexOf(args []ref.Val) ref.Val {
	text, part, ok := texts(args)
	end := len(text)
	if len(args) > 2 {
		from, isInt := args[2].(types.Int)
		if !isInt || from < 0 {
			return nil
		}
		start := byteIndex(text, from)
		if start >= len(text) {
			return nil
		}
		end = min(end, start+len(part))
	}
	if !ok || text == "" || part == "" {
		return nil
	}
	found := strings.LastIndex(text[:end], part)
	if found < 0 {
		return types.Int(-1)
	}
	return types.Int(utf8.RuneCountInString(text[:found]))
}

// byteIndex returns the index of a character, or the length of the text if it has fewer characters.
func byteIndex(text string, character types.Int) int {
	for i := range text {
		if character == 0 {
			return i
		}
		character--
	}
	return len(text)
}
