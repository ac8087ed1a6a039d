package dashboard

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// strangeTexts are texts that YAML reads as something else without quotes.
var strangeTexts = []string{"", " ", "yes", "No", "null", "~", "1", "1e3", "0x1f", "1_000", "01", ".5", "1:30",
	"2026-01-02", "-", "- a", "a: b", "a:", ":a", "a #b", "#", "'", `"`, `\`, "a\tb", "a\n", "\na", "a\n\n", "a\nb", "  a\nb", "a\n b\n",
	"a \nb", "\n", "\n\n", "\u0000", "\u0085", "\u2028", "é", "日本", "😀", "<<", "=", "!a", "&a", "*a", "%a", "@a", "`a",
	"{a}", "[a]", "a,b", "|", ">", "?", "? a", "---", "...", "...\nb", "---\nb", "a\r\nb", "trailing ", "\ufeffa", "1.",
	"+1", ".inf", ".NaN", "0o17", "off", "registry.example/web:1.0", "a  b", "\ta\nb", "a\n\tb\n"}

// valueGenerator generates values of JSON.
func valueGenerator(depth int) *rapid.Generator[any] {
	text := rapid.OneOf(rapid.SampledFrom(strangeTexts), rapid.String(), rapid.StringMatching(`[ -~\n]{0,20}`))
	scalars := []*rapid.Generator[any]{text.AsAny(), rapid.Bool().AsAny(), rapid.Int32().AsAny(),
		rapid.Float64Range(-1e6, 1e6).AsAny(), rapid.Just[any](nil)}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := valueGenerator(depth - 1)
	return rapid.OneOf(append(scalars, rapid.SliceOfN(inner, 0, 4).AsAny(), rapid.MapOfN(text, inner, 0, 4).AsAny())...)
}

func TestTheYAMLOfAnyValueIsReadBackAsTheValue(t *testing.T) {
	p := openTab(t, board, "/p/kinds")
	check := func(value any) error {
		data, err := json.Marshal(map[string]any{"value": value})
		if err != nil {
			return err
		}
		text := evaluate[string](p, "import('/app/yaml.js').then((m) => m.toYAML("+string(data)+"))")
		read, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, text)
		}
		var got, want any
		if err := json.Unmarshal(read, &got); err != nil {
			return err
		}
		if err := json.Unmarshal(data, &want); err != nil {
			return err
		}
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s is read as %s from\n%s", data, read, text)
		}
		return nil
	}
	for _, text := range strangeTexts {
		if err := check([]any{text, map[string]any{text: text}}); err != nil {
			t.Error(err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		if err := check(valueGenerator(3).Draw(r, "value")); err != nil {
			r.Fatal(err)
		}
	})
}

func TestADiffContainsBothTexts(t *testing.T) {
	p := openTab(t, board, "/p/kinds")
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "", "d: 1"}), 1, 30)
	type line struct{ Kind, Text string }
	rapid.Check(t, func(r *rapid.T) {
		before, after := strings.Join(lines.Draw(r, "before"), "\n"), strings.Join(lines.Draw(r, "after"), "\n")
		diff := evaluate[[]line](p, fmt.Sprintf(`import('/app/diff.js').then((m) => m.diffLines(%s, %s).map((l) =>
			({Kind: l.kind, Text: l.text})))`, quote(before), quote(after)))
		var first, second []string
		for _, l := range diff {
			if l.Kind != "added" {
				first = append(first, l.Text)
			}
			if l.Kind != "removed" {
				second = append(second, l.Text)
			}
		}
		if strings.Join(first, "\n") != before || strings.Join(second, "\n") != after {
			r.Fatalf("the diff of %q and %q is %v", before, after, diff)
		}
	})
}

func TestTheScreenOfATerminalFollowsControlSequences(t *testing.T) {
	p := openTab(t, board, "/p/kinds")
	for _, c := range []struct{ about, output, want string }{
		{"plain text", "hello", "hello"},
		{"line feed and carriage return", "a\r\nb\nc", "a\nb\n c"},
		{"a long line wraps", "0123456789ab", "0123456789\nab"},
		{"no wrap", "\x1b[?7l0123456789ab", "012345678b"},
		{"the last column waits", "0123456789\r\nx", "0123456789\nx"},
		{"backspace", "abc\b\bX", "aXc"},
		{"tabs", "a\tb", "a       b"},
		{"the cursor moves", "\x1b[2;3Hx\x1b[A\x1b[2Dy\x1b[1Bz", " y\n  z"},
		{"erase to the end of the line", "abcdef\x1b[4D\x1b[K", "ab"},
		{"erase to the start of the line", "abcdef\x1b[4D\x1b[1K", "   def"},
		{"erase the screen below", "a\r\nb\r\nc\x1b[2;1H\x1b[J", "a"},
		{"erase the screen", "a\r\nb\x1b[2J", ""},
		{"erase characters", "abcdef\r\x1b[2X", "  cdef"},
		{"insert and delete characters", "abc\r\x1b[1@x\x1b[2Cd\x1b[2D\x1b[P", "xad"},
		{"insert mode", "abc\r\x1b[4hxy\x1b[4lz", "xyzbc"},
		{"scrolling", "1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5"},
		{"a scroll region", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nx", "1\n3\nx\n4"},
		{"reverse index", "1\r\n2\x1b[1;1H\x1bMx", "x\n1\n2"},
		{"insert lines", "1\r\n2\r\n3\x1b[2;1H\x1b[L", "1\n\n2\n3"},
		{"delete lines", "1\r\n2\r\n3\x1b[1;1H\x1b[2M", "3"},
		{"save and restore", "ab\x1b7\x1b[3;3Hx\x1b8c", "abc\n\n  x"},
		{"the alternate screen", "main\x1b[?1049h\x1b[Hother\x1b[?1049l!", "main!"},
		{"inside of the alternate screen", "main\x1b[?1049h\x1b[Hother", "other"},
		{"repeat", "a\x1b[3b", "aaaa"},
		{"line drawing", "\x1b(0lqk\x1b(B-", "┌─┐-"},
		{"wide characters", "日本x\x1b[1;3Hy", "日yx"},
		{"combining characters", "e\u0301x", "e\u0301x"},
		{"a title", "\x1b]0;a title\x07x", "x"},
		{"unknown sequences", "\x1b[?9999h\x1b[5;6;7y\x1bP1$r\x1b\\\x1b_x\x1b\\a", "a"},
		{"an interrupted sequence", "\x1b[3\x18a", "a"},
		{"huge numbers", "\x1b[99999999999A\x1b[99999999C!\x1b[999999999@\x1b[999999999L\x1b[99999999bx",
			"!!!!!!!!!!\n!!!!!!!!!!\n!!!!!!!!!!\nx"},
		{"reset", "abc\x1b[31m\x1bcd", "d"},
	} {
		got := evaluate[string](p, fmt.Sprintf(`import('/app/vt.js').then((m) => {
			const vt = new m.VT(10, 4);
			vt.write(%s);
			return vt.text();
		})`, quote(c.output)))
		if got != c.want {
			t.Errorf("%s: the screen is %q instead of %q", c.about, got, c.want)
		}
	}
	answers := evaluate[string](p, `import('/app/vt.js').then((m) => { let text = ''; const vt = new m.VT(10, 4, (answer) => {
		text += answer; }); vt.write('\x1b[2;3H\x1b[6n\x1b[5n'); return text; })`)
	if answers != "\x1b[2;3R\x1b[0n" {
		t.Errorf("the answers are %q", answers)
	}
}

// TestATerminalWithstandsAnyOutput writes random sequences, also after changes of the size: the screen stays whole.
func TestATerminalWithstandsAnyOutput(t *testing.T) {
	p := openTab(t, board, "/p/kinds")
	part := rapid.OneOf(rapid.StringMatching(`\x1b\[[0-9;?]{0,6}[@-~]`), rapid.StringMatching(`\x1b[ -~]`),
		rapid.StringMatching(`[ -~日é\n\r\t\x08]{0,12}`))
	rapid.Check(t, func(r *rapid.T) {
		output := strings.Join(rapid.SliceOfN(part, 1, 40).Draw(r, "output"), "")
		cols, rows := rapid.IntRange(2, 30).Draw(r, "cols"), rapid.IntRange(2, 12).Draw(r, "rows")
		isWhole := evaluate[bool](p, fmt.Sprintf(`import('/app/vt.js').then((m) => {
			const vt = new m.VT(20, 6);
			const isWhole = () => vt.lines.length === vt.rows && vt.lines.every((line) => line.length === vt.cols &&
				line.every((cell) => cell && typeof cell.char === 'string' && cell.style)) &&
				vt.x >= 0 && vt.x < vt.cols && vt.y >= 0 && vt.y < vt.rows;
			vt.write(%[1]s);
			const first = isWhole();
			vt.resize(%[2]d, %[3]d);
			vt.write(%[1]s);
			return first && isWhole();
		})`, quote(output), cols, rows))
		if !isWhole {
			r.Fatalf("the screen is not whole after %q", output)
		}
	})
}
