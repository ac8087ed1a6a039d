package load

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"clusterctl/hcl/block"
)

// The table in testdata/functions.txt has an expression on each line, then =>, then its value as JSON, "unknown",
// "sensitive", or "error" with a part of the message. With -v, this test prints the table, sorted by function.
func TestFunctionsMatchTerraform(t *testing.T) {
	scope := functionScope(t)
	byFunction := map[string][]functionRow{}
	for _, r := range functionRows(t) {
		byFunction[r.function] = append(byFunction[r.function], r)
		expr, diags := hclsyntax.ParseExpression([]byte(r.source), "functions.txt", hcl.InitialPos)
		if diags.HasErrors() {
			t.Errorf("line %d: %v", r.line, diags)
			continue
		}
		v, diags := expr.Value(scope)
		if got := describeResult(t, v, diags); got != r.want && !(strings.HasPrefix(r.want, "error: ") &&
			strings.HasPrefix(got, "error: ") && strings.Contains(got, strings.TrimPrefix(r.want, "error: "))) {
			t.Errorf("line %d: %s\n got %s\nwant %s", r.line, r.source, got, r.want)
		}
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(scope.Functions)) {
		for _, r := range byFunction[name] {
			fmt.Fprintf(w, "%s\t%s\t%.70s\t%.70s\n", name, r.describeCases(), r.source, r.want)
		}
		for _, c := range functionCases {
			covered := slices.ContainsFunc(byFunction[name], func(r functionRow) bool { return c.matches(r.source) })
			if c.applies(scope.Functions[name]) && !covered {
				t.Errorf("testdata/functions.txt has no line about %s with %s", name, c.text)
			}
		}
		if len(byFunction[name]) == 0 {
			t.Errorf("testdata/functions.txt has no line about %s", name)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("functions, the case that a line is about, the expression and its value:\n" + table.String())
}

// functionRow is a line of testdata/functions.txt.
type functionRow struct {
	line                   int
	function, source, want string
}

func (r functionRow) describeCases() string {
	var list []string
	for _, c := range functionCases {
		if c.matches(r.source) {
			list = append(list, c.name)
		}
	}
	return strings.Join(list, ",")
}

// functionCase is a kind of argument. Each function whose parameters accept it must have a line with it.
type functionCase struct {
	name, text string
	matches    func(source string) bool
	applies    func(function.Function) bool
}

var functionCases = []functionCase{
	{"null", "null", regexp.MustCompile(`\bnull\b|null_list|map_of_nulls`).MatchString, hasParameters},
	{"unknown", "an unknown value", regexp.MustCompile(`unknown|maybe`).MatchString, hasParameters},
	{"empty", "an empty text or collection", regexp.MustCompile(`""|\[\]|\{\}|empty\.txt`).MatchString,
		acceptsType(func(ty cty.Type) bool { return ty == cty.String || ty.IsCollectionType() })},
	{"unicode", "text beyond ASCII", regexp.MustCompile(`[^\x00-\x7f]|accented|family`).MatchString,
		acceptsType(func(ty cty.Type) bool { return ty == cty.String || ty.IsCollectionType() })},
	{"large", "a number of more than 16 digits", regexp.MustCompile(`[0-9]{17}`).MatchString,
		acceptsType(func(ty cty.Type) bool { return ty == cty.Number })},
}

func hasParameters(f function.Function) bool { return len(f.Params()) > 0 || f.VarParam() != nil }

// acceptsType returns a function that reports whether a parameter accepts a type for which matches returns true.
func acceptsType(matches func(cty.Type) bool) func(function.Function) bool {
	return func(f function.Function) bool {
		list := f.Params()
		if v := f.VarParam(); v != nil {
			list = append(slices.Clone(list), *v)
		}
		return slices.ContainsFunc(list, func(p function.Parameter) bool {
			return p.Type == cty.DynamicPseudoType || p.Type.IsCapsuleType() || matches(p.Type)
		})
	}
}

func functionRows(t *testing.T) (rows []functionRow) {
	t.Helper()
	text, err := os.ReadFile("testdata/functions.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		source, want, ok := strings.Cut(line, " => ")
		if !ok {
			t.Fatalf("line %d has no =>", n)
		}
		name, _, _ := strings.Cut(source, "(")
		rows = append(rows, functionRow{n, name, source, want})
	}
	return rows
}

// functionScope returns the scope in which the expressions of the table are evaluated.
func functionScope(t *testing.T) *hcl.EvalContext {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hello.txt": "Hello World", "sub/a.yaml": "a: 1", "sub/deep/b.yaml": "b: 2", "c.yml": "c: 3",
		"binary.bin": "\xff\xfe", "empty.txt": "",
		"backends.tftpl": "%{ for addr in ip_addrs ~}\nbackend ${addr}:${port}\n%{ endfor ~}\n", "list.tftpl": "${list}", "self.tftpl": `${templatefile("self.tftpl", {})}`,
		"config.tftpl": "${yamlencode({ backends = [for a in ip_addrs : \"${a}:${port}\"] })}",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", "/home/me")
	functions := Functions(dir, time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC))
	return &hcl.EvalContext{Functions: functions, Variables: map[string]cty.Value{
		"unknown":        cty.DynamicVal,
		"unknown_string": cty.UnknownVal(cty.String),
		"unknown_list":   cty.UnknownVal(cty.List(cty.String)),
		"has_unknown":    cty.ListVal([]cty.Value{cty.StringVal("a"), cty.UnknownVal(cty.String)}),
		"maybe":          cty.UnknownVal(cty.Bool),
		"secret":         cty.StringVal("hidden").Mark(block.Sensitive),
		"secrets":        cty.ObjectVal(map[string]cty.Value{"a": cty.StringVal("hidden").Mark(block.Sensitive)}),
		"null_list":      cty.NullVal(cty.List(cty.String)),
		"local": cty.ObjectVal(
			map[string]cty.Value{
				"template": cty.StringVal("Hello, ${name}!"),
				"number":   cty.NumberIntVal(1),
				"bad":      cty.StringVal("${"),
				"unknown":  cty.UnknownVal(cty.String),
			},
		),
		"crlf":            cty.StringVal("hello\r\n\r\n"),
		"accented":        cty.StringVal("e\u0301te\u0301"),
		"family":          cty.StringVal("👩‍👩‍👧‍👦"),
		"map_of_nulls":    cty.MapVal(map[string]cty.Value{"a": cty.NullVal(cty.String)}),
		"gzipped_hello":   cty.StringVal("H4sIAAAAAAAA//JIzcnJVwjPL8pJUSxKTM4uAQAAAP//"),
		"big_text_base64": cty.StringVal(strings.Repeat("QUFB", 1000)),
	}}
}

func describeResult(t *testing.T, v cty.Value, diags hcl.Diagnostics) string {
	t.Helper()
	switch {
	case diags.HasErrors():
		return "error: " + strings.ReplaceAll(diags[0].Detail, "\n", " ")
	case v.IsMarked():
		return "sensitive"
	case v.ContainsMarked():
		return "sensitive inside"
	case !v.IsWhollyKnown():
		return "unknown"
	}
	text, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRSADecryptAcceptsAllKeyFormats(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := rsa.EncryptPKCS1v15(rand.Reader, &key.PublicKey, []byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	functions := Functions(".", time.Now())
	ciphertext := cty.StringVal(base64.StdEncoding.EncodeToString(sealed))
	for _, block := range []*pem.Block{{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		{Type: "PRIVATE KEY", Bytes: pkcs8}} {
		v, err := functions["rsadecrypt"].Call(
			[]cty.Value{ciphertext, cty.StringVal(string(pem.EncodeToMemory(block)))},
		)
		if err != nil || v.AsString() != "hunter2" {
			t.Errorf("%s: %v, %v", block.Type, v, err)
		}
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(other)})
	if v, err := functions["rsadecrypt"].Call([]cty.Value{ciphertext, cty.StringVal(string(text))}); err == nil {
		t.Errorf("another key decrypts it to %v", v)
	}
}

func TestRunsHaveTheirOwnTimeAndUUID(t *testing.T) {
	now := time.Date(2026, 11, 27, 11, 0, 0, 0, time.FixedZone("", 3600))
	f := Functions(".", now)
	for _, name := range []string{"timestamp", "plantimestamp"} {
		if v, err := f[name].Call(nil); err != nil || v.AsString() != "2026-11-27T10:00:00Z" {
			t.Errorf("%s() is %v, %v", name, v, err)
		}
	}
	a, errA := f["uuid"].Call(nil)
	b, errB := f["uuid"].Call(nil)
	if errA != nil || errB != nil || len(a.AsString()) != 36 || a.RawEquals(b) {
		t.Errorf("uuid() is %v and then %v", a, b)
	}
}

// FuzzYAML checks that yamldecode returns the value that yamlencode encoded.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{"", "a", "a\nb", "a\n\n", " a\nb", "a: b", "\x00", "- x", "é\u2028", "a\n  \n b\n\n\n",
		"#", "\t\n", "a\r\nb", "\ufeffa\nb", "~", "1e3", "0x10", "yes"} {
		f.Add(s, 1.5, true)
	}
	f.Fuzz(func(t *testing.T, s string, n float64, nested bool) {
		text := cty.StringVal(s) // normalized
		v := cty.ObjectVal(
			map[string]cty.Value{
				"text":  text,
				"list":  cty.TupleVal([]cty.Value{text, cty.EmptyTupleVal, cty.TupleVal([]cty.Value{text})}),
				"empty": cty.EmptyObjectVal,
			},
		)
		if n == n && n < 1e300 && n > -1e300 {
			v = cty.ObjectVal(
				map[string]cty.Value{
					"v":      v,
					"number": cty.NumberFloatVal(n),
					s + "k":  cty.NullVal(cty.DynamicPseudoType),
				},
			)
		}
		if nested {
			v = cty.TupleVal([]cty.Value{v, text})
		}
		encoded, err := yamlEncodeFunc.Call([]cty.Value{v})
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := yamlDecodeFunc.Call([]cty.Value{encoded})
		if err != nil || !decoded.RawEquals(v) {
			t.Errorf("%#v is written as\n%s\nand read as %#v, %v", v, encoded.AsString(), decoded, err)
		}
	})
}
