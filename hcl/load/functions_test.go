package load

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"clusterctl/hcl/block"
)

// The table in testdata/functions.txt has an expression on each line, then =>, then its value as JSON, "unknown",
// "sensitive", or "error" with what the message says.
func TestFunctionsAreTerraforms(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hello.txt": "Hello World", "sub/a.yaml": "a: 1", "sub/deep/b.yaml": "b: 2", "c.yml": "c: 3", "binary.bin": "\xff\xfe", "empty.txt": "",
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
	scope := &hcl.EvalContext{Functions: Functions(dir, time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)), Variables: map[string]cty.Value{
		"unknown":         cty.DynamicVal,
		"unknown_string":  cty.UnknownVal(cty.String),
		"unknown_list":    cty.UnknownVal(cty.List(cty.String)),
		"has_unknown":     cty.ListVal([]cty.Value{cty.StringVal("a"), cty.UnknownVal(cty.String)}),
		"maybe":           cty.UnknownVal(cty.Bool),
		"secret":          cty.StringVal("hidden").Mark(block.Sensitive),
		"secrets":         cty.ObjectVal(map[string]cty.Value{"a": cty.StringVal("hidden").Mark(block.Sensitive)}),
		"null_list":       cty.NullVal(cty.List(cty.String)),
		"local":           cty.ObjectVal(map[string]cty.Value{"template": cty.StringVal("Hello, ${name}!"), "number": cty.NumberIntVal(1), "bad": cty.StringVal("${"), "unknown": cty.UnknownVal(cty.String)}),
		"crlf":            cty.StringVal("hello\r\n\r\n"),
		"accented":        cty.StringVal("e\u0301te\u0301"),
		"family":          cty.StringVal("👩‍👩‍👧‍👦"),
		"map_of_nulls":    cty.MapVal(map[string]cty.Value{"a": cty.NullVal(cty.String)}),
		"gzipped_hello":   cty.StringVal("H4sIAAAAAAAA//JIzcnJVwjPL8pJUSxKTM4uAQAAAP//"),
		"big_text_base64": cty.StringVal(strings.Repeat("QUFB", 1000)),
	}}
	text, err := os.ReadFile("testdata/functions.txt")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
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
		expr, diags := hclsyntax.ParseExpression([]byte(source), "functions.txt", hcl.InitialPos)
		if diags.HasErrors() {
			t.Errorf("line %d: %v", n, diags)
			continue
		}
		name, _, _ := strings.Cut(source, "(")
		tested[name] = true
		v, diags := expr.Value(scope)
		if got := described(t, v, diags); got != want && !(strings.HasPrefix(want, "error: ") && strings.HasPrefix(got, "error: ") && strings.Contains(got, strings.TrimPrefix(want, "error: "))) {
			t.Errorf("line %d: %s\n got %s\nwant %s", n, source, got, want)
		}
	}
	for name := range scope.Functions {
		if !tested[name] {
			t.Errorf("testdata/functions.txt has no line about %s", name)
		}
	}
}

func described(t *testing.T, v cty.Value, diags hcl.Diagnostics) string {
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

func TestRSADecryptTakesEveryFormOfAKey(t *testing.T) {
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
	for _, block := range []*pem.Block{{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}, {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		v, err := functions["rsadecrypt"].Call([]cty.Value{ciphertext, cty.StringVal(string(pem.EncodeToMemory(block)))})
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

func TestEachRunHasItsOwnTimeAndUUID(t *testing.T) {
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

// FuzzYAML: what yamlencode writes, yamldecode reads back as it was.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{"", "a", "a\nb", "a\n\n", " a\nb", "a: b", "\x00", "- x", "é\u2028", "a\n  \n b\n\n\n", "#", "\t\n", "a\r\nb", "\ufeffa\nb", "~", "1e3", "0x10", "yes"} {
		f.Add(s, 1.5, true)
	}
	f.Fuzz(func(t *testing.T, s string, n float64, nested bool) {
		text := cty.StringVal(s) // normalized
		v := cty.ObjectVal(map[string]cty.Value{"text": text, "list": cty.TupleVal([]cty.Value{text, cty.EmptyTupleVal, cty.TupleVal([]cty.Value{text})}), "empty": cty.EmptyObjectVal})
		if n == n && n < 1e300 && n > -1e300 {
			v = cty.ObjectVal(map[string]cty.Value{"v": v, "number": cty.NumberFloatVal(n), s + "k": cty.NullVal(cty.DynamicPseudoType)})
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
