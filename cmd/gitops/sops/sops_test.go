package sops

import (
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"filippo.io/age"

	"clusterctl/cmd/gitops/sops/sopstest"
	"clusterctl/daemons/gitops"
)

func newIdentity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func secretOf(ids ...*age.X25519Identity) map[string][]byte {
	secret := map[string][]byte{}
	for i, id := range ids {
		secret[fmt.Sprintf("%d.agekey", i)] = []byte("# a comment\n" + id.String() + "\n")
	}
	return secret
}

// read decrypts one file.
func read(t *testing.T, name, text string, secret map[string][]byte) (string, func(string) string, error) {
	t.Helper()
	files, redact, err := Decrypter{}.Decrypt(fstest.MapFS{name: &fstest.MapFile{Data: []byte(text)}}, secret)
	if err != nil {
		return "", nil, err
	}
	for range 2 { // the second time from memory
		plain, err := gitops.NewBudget().ReadFile(files, name)
		if err != nil {
			return "", redact, err
		}
		text = string(plain)
	}
	return text, redact, nil
}

func wantRefused(t *testing.T, name string, err error, want string) {
	t.Helper()
	var named *gitops.ReasonError
	if !errors.As(err, &named) || named.Reason != gitops.ReasonDecryption || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want DecryptionFailed with %q", name, err, want)
	}
}

// Proves P06.
func TestValuesOfEveryTypeAreDecrypted(t *testing.T) {
	id := newIdentity(t)
	f := sopstest.NewFile(t)
	text := "# a comment\napiVersion: " + f.Plain("v1") + "\nkind: " + f.Plain("Secret") + "\nmetadata:\n  name: " +
		f.Plain("db") + "\n  generation: " + f.Plain("16") + "\n  ratio: " + f.Plain("1.5") +
		"\n  none: null\nstringData:\n" +
		"  password: " + f.Value("p\"ass\n: word", "stringData:password", "str") + " #ENC[AES256_GCM,data:x]\n" +
		"  port: " + f.Value("5432", "stringData:port", "int") + "\n  share: " +
		f.Value("0.25", "stringData:share", "float") +
		"\n  tls: " + f.Value("True", "stringData:tls", "bool") + "\n  text: " +
		f.Value("0x10", "stringData:text", "str") +
		"\n  empty: \"\"\n  list:\n  - " + f.Value("a-value", "stringData:list", "str") + "\n  - deep: " +
		f.Value("b-value", "stringData:list:deep", "str") + "\n" +
		f.Metadata("  encrypted_regex: ^(data|stringData)$\n", newIdentity(t), id)
	got, redact, err := read(t, "db.yaml", text, secretOf(newIdentity(t), id))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := gitops.ParseManifest("db.yaml", []byte(got))
	if err != nil || len(objects) != 1 {
		t.Fatalf("%v\n%s", err, got)
	}
	want := map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "db", "generation": int64(16), "ratio": 1.5, "none": nil},
		"stringData": map[string]any{"password": "p\"ass\n: word", "port": int64(5432), "share": 0.25, "tls": true,
			"text": "0x10", "empty": "", "list": []any{"a-value", map[string]any{"deep": "b-value"}}}}
	if fmt.Sprint(objects[0].Object) != fmt.Sprint(want) {
		t.Errorf("%v\nwant\n%v", objects[0].Object, want)
	}
	for _, message := range []string{`invalid value p"ass` + "\n: word", `"p\"ass\n: word"`, "a-value", "port 5432",
		"cCJhc3MKOiB3b3Jk", `the part \"ass\n: word`} {
		if got := redact(message); !strings.Contains(got, mask) || strings.Contains(got, "word") {
			t.Errorf("%q becomes %q", message, got)
		}
	}
	if got := redact("db.yaml:3: no such field"); got != "db.yaml:3: no such field" {
		t.Errorf("another message becomes %q", got)
	}
}

func TestRulesOfSOPSDecideWhatIsEncrypted(t *testing.T) {
	id := newIdentity(t)
	for rule, row := range map[string]struct{ secret, public string }{
		"":                               {"data", "kind_unencrypted"},
		"  unencrypted_suffix: _plain\n": {"data", "a_plain"},
		"  encrypted_suffix: _secret\n":  {"a_secret", "kind"},
		"  unencrypted_regex: ^kind$\n":  {"data", "kind"},
		"  encrypted_regex: ^(data|stringData)$\n": {"data", "kind"},
	} {
		f := sopstest.NewFile(t)
		text := row.secret + ": {x: \"" + f.Value("secret", row.secret+":x", "str") + "\"}\n" + row.public + ": " +
			f.Plain("ConfigMap") + "\n" + f.Metadata(rule, id)
		got, _, err := read(t, "a.yml", text, secretOf(id))
		if want := row.secret + ": {x: \"secret\"}\n" + row.public + ": ConfigMap\n"; err != nil || got != want {
			t.Errorf("%q: %v\n%s", rule, err, got)
		}
	}
	f := sopstest.NewFile(t)
	text := "kind: anything\ndata: " + f.Value("secret", "data", "str") + "\n"
	f.MAC = append(bytes.Clone(macOnlyEncrypted), f.MAC...)
	text += f.Metadata("  encrypted_regex: ^data$\n  mac_only_encrypted: true\n", id)
	if got, _, err := read(t, "a.yaml", text, secretOf(id)); err != nil || got != "kind: anything\ndata: \"secret\"\n" {
		t.Errorf("a MAC over encrypted values: %v\n%s", err, got)
	}
}

func TestJSONAndSeveralDocumentsAreDecrypted(t *testing.T) {
	id := newIdentity(t)
	f := sopstest.NewFile(t)
	first := "a: " + f.Value("one", "a", "str") + "\n"
	second := "a: " + f.Value("two", "a", "str") + "\n"
	meta := f.Metadata("", id)
	got, _, err := read(t, "a.yaml", first+meta+"---\n"+second+meta, secretOf(id))
	if err != nil || got != "a: \"one\"\n---\na: \"two\"\n" {
		t.Errorf("%v\n%s", err, got)
	}
	// An exchange of documents changes the MAC.
	_, _, err = read(t, "a.yaml", second+meta+"---\n"+first+meta, secretOf(id))
	wantRefused(t, "exchanged documents", err, "MAC does not match")
	_, _, err = read(t, "a.yaml", first+meta+"---\nb: c\n", secretOf(id))
	wantRefused(t, "a document that is not encrypted", err, "others are not")
	other := sopstest.NewFile(t)
	text := "a: " + other.Value("one", "a", "str") + "\n" + other.Metadata("", id)
	_, _, err = read(t, "a.yaml", first+meta+"---\n"+text, secretOf(id))
	wantRefused(t, "documents of two files", err, "separately")

	f = sopstest.NewFile(t)
	value := f.Value("one", "a", "str")
	sum := sha512.Sum512(f.MAC)
	text = fmt.Sprintf(`{"a": %q, "sops": {"lastmodified": %q, "mac": %q, "age": [{"recipient": "x", "enc": %q}]}}`, value,
		sopstest.Modified, f.Seal(strings.ToUpper(hex.EncodeToString(sum[:])), sopstest.Modified, "str"),
		sopstest.Envelope(t, f.Key, id.Recipient()))
	if got, _, err := read(t, "a.json", text, secretOf(id)); err != nil || got != `{"a":"one"}` {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestChangedFilesAreRefused(t *testing.T) {
	id := newIdentity(t)
	f := sopstest.NewFile(t)
	body := "kind: " + f.Plain("Secret") + "\n"
	value := f.Value("secret", "data:a", "str")
	more := "  encrypted_regex: ^data$\n"
	meta := f.Metadata(more, id)
	good := body + "data:\n  a: " + value + "\n" + meta
	if _, _, err := read(t, "a.yaml", good, secretOf(id)); err != nil {
		t.Fatal(err)
	}
	forged := sopstest.NewFile(t)
	forged.MAC = f.MAC
	for name, row := range map[string]struct{ text, want string }{
		"a changed plain value":    {strings.Replace(good, "kind: Secret", "kind: Other", 1), "MAC does not match"},
		"a value that was added":   {strings.Replace(good, "kind:", "more: x\nkind:", 1), "MAC does not match"},
		"a value that was removed": {strings.Replace(good, "  a: "+value+"\n", "  a: \"\"\n", 1), "MAC does not match"},
		"a moved value": {strings.Replace(good, "  a: ", "  b: ", 1), "field data.b: it was changed, or " +
			"moved"},
		"a plain value": {strings.Replace(good, "  a: "+value, "  a: secret", 1), "field data.a: it does not have " +
			"the format"},
		"a number":    {strings.Replace(good, "  a: "+value, "  a: 1", 1), "field data.a: it does not have the format"},
		"a key twice": {strings.Replace(good, "  a: ", "  a: "+value+"\n  a: ", 1), `key "a" twice`},
		"an alias":    {strings.Replace(good, "kind: Secret", "kind: &x Secret\nx: *x", 1), "alias"},
		"a merge":     {strings.Replace(good, "kind: Secret", "kind: Secret\n<<: {x: y}", 1), "not a string"},
		"another MAC": {body + "data:\n  a: " + value + "\n" + strings.Replace(meta, metaMAC(meta),
			metaMAC(forged.Metadata(more)), 1), "MAC cannot be decrypted"},
		"an older MAC": {body + "data:\n  a: " + value + "\n" +
			strings.Replace(meta, sopstest.Modified, "2026-01-30T12:00:00Z", 1),
			"MAC cannot be decrypted"},
		"a rule that hides a change": {strings.Replace(good, more, "  mac_only_encrypted: true\n"+more, 1),
			"MAC does not match"},
		"two rules":          {strings.Replace(good, more, more+"  unencrypted_suffix: x\n", 1), "more than one rule"},
		"a rule on comments": {strings.Replace(good, more, "  encrypted_comment_regex: x\n", 1), "comments"},
		"a broken pattern":   {strings.Replace(good, more, "  encrypted_regex: (\n", 1), "regular expression"},
		"no recipient":       {body + "data:\n  a: " + value + "\n" + f.Metadata(more), "no age recipient"},
		"key groups":         {good + "  key_groups:\n  - age: []\n", "key groups"},
		"a damaged data key": {strings.Replace(good, "BEGIN AGE", "BEGIN OLD", 1), "damaged"},
		"a large data key": {strings.Replace(good, "    enc: |\n", "    enc: |\n      "+
			strings.Repeat("A", maxEnvelope)+"\n", 1),
			"more than"},
		"a large file":   {good + "# " + strings.Repeat("x", maxFile), "encrypted files may have at most"},
		"damaged base64": {strings.Replace(good, value, strings.Replace(value, "data:", "data:=", 1), 1), "base64"},
		"a short tag": {strings.Replace(good, value, value[:strings.Index(value, "tag:")]+"tag:AAAA,type:str]", 1),
			"lengths"},
		"another type": {strings.Replace(good, value, strings.Replace(value, "type:str", "type:int", 1), 1),
			"type int"},
		"an unknown type": {strings.Replace(good, value, strings.Replace(value, "type:str", "type:x", 1), 1),
			"not known"},
	} {
		_, _, err := read(t, "a.yaml", row.text, secretOf(id))
		wantRefused(t, name, err, row.want)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the value: %v", name, err)
		}
	}
	_, _, err := read(t, "a.yaml", good, secretOf(newIdentity(t)))
	wantRefused(t, "another key", err, "none of the private keys matches; it is encrypted for "+
		"\""+id.Recipient().String())
	for name, secret := range map[string]map[string][]byte{
		"no key":      {},
		"another one": {"identity.asc": []byte("x")},
		"no age key":  {"a.agekey": []byte("AGE-SECRET-KEY-1X")},
	} {
		_, _, err := read(t, "a.yaml", good, secret)
		wantRefused(t, name, err, "the Secret")
		if strings.Contains(err.Error(), "AGE-SECRET") {
			t.Errorf("%s: the error has the key", name)
		}
	}
}

// metaMAC returns the MAC in a field sops.
func metaMAC(meta string) string {
	_, rest, _ := strings.Cut(meta, "mac: ")
	mac, _, _ := strings.Cut(rest, "\n")
	return mac
}

func TestOtherFilesStayAsTheyAre(t *testing.T) {
	id := newIdentity(t)
	for name, text := range map[string]string{
		"a.yaml":      "sops: {enabled: true, mac: none}\nx: ENC[AES256_GCM,x]\n",
		"b.yaml":      "{{ if .sops }}\nENC[AES256_GCM,\n",
		"c.txt":       "about sops and ENC[AES256_GCM,x]\n",
		"d.yaml":      "a: &x 1\nb: *x\n",
		"empty.yaml":  "",
		"script.json": "[1, 2]",
	} {
		if got, _, err := read(t, name, text, secretOf(id)); err != nil || got != text {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
	files, _, err := Decrypter{}.Decrypt(fstest.MapFS{"link.yaml": &fstest.MapFile{Data: []byte("/etc/passwd"),
		Mode: fs.ModeSymlink | 0o777}}, secretOf(id))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gitops.NewBudget().ReadFile(files, "link.yaml"); err == nil {
		t.Error("a link is followed")
	}
}

func TestManyDecryptedValuesHideTheWholeMessage(t *testing.T) {
	r := newRedactor()
	if got := r.redact("message"); got != "message" {
		t.Errorf("without values: %q", got)
	}
	r.add("abc") // too short to differ from other text
	if got := r.redact("abc"); got != "abc" {
		t.Errorf("a short value: %q", got)
	}
	for i := range 10 {
		r.add(strings.Repeat(fmt.Sprint(i), maxRedacted/8))
	}
	if got := r.redact("a message"); strings.Contains(got, "a message") {
		t.Errorf("it becomes %q", got)
	}
}

func FuzzDecrypt(f *testing.F) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("a: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]\nsops: {mac: 'ENC[AES256_GCM,', age: [{enc: " +
		"x}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if plain, _, err := decryptFile(text, false, []age.Identity{id}); err == nil && plain != nil {
			t.Errorf("it is decrypted without a data key: %q", plain)
		}
	})
}

// Files that SOPS has encrypted in another format, or that a merge has damaged, would otherwise be used as they are,
// for example by a generator of Secrets.
func TestEncryptedFilesThatAreNotDecryptedAreErrors(t *testing.T) {
	const value = "ENC[AES256_GCM,data:AAAA,iv:AAAA,tag:AAAA,type:str]"
	secret := secretOf(newIdentity(t))
	for name, text := range map[string]string{
		"a.env":      "PASSWORD=" + value + "\nsops_version=3.9.0\nsops_mac=" + value + "\n",
		"a.ini":      "[db]\npassword = " + value + "\n\n[sops]\nmac                = " + value + "\n",
		"a.bin":      "{\n\t\"data\": \"" + value + "\",\n\t\"sops\": {\"mac\": \"" + value + "\"}\n}",
		"secret.enc": "password: " + value + "\nsops:\n  mac: " + value + "\n",
	} {
		_, _, err := read(t, name, text, secret)
		wantRefused(t, name, err, name+": it is encrypted with SOPS, and only files")
	}
	damaged := "<<<<<<< main\npassword: " + value + "\n=======\n>>>>>>> other\nsops:\n  mac: " + value + "\n"
	for name, text := range map[string]string{"a.yaml": damaged,
		"a.json": "{\"sops\": {\"mac\": \"" + value + "\"},"} {
		_, _, err := read(t, name, text, secret)
		wantRefused(t, name, err, "not valid YAML or JSON")
	}
}

// The file that the test of the whole cluster uses was not made by this package.
func TestTheSecretOfTheClusterTestIsDecrypted(t *testing.T) {
	script, err := os.ReadFile("../../../tests/suites/e2e/testdata/controlplane/gitops_objects.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(script), "'echo ")
	encoded, rest, _ := strings.Cut(rest, " | base64 -d")
	_, rest, _ = strings.Cut(rest, "home.agekey=")
	key, _, _ := strings.Cut(rest, "'\n")
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := read(t, "secret.json", string(text), map[string][]byte{"home.agekey": []byte(key)})
	if err != nil || !strings.Contains(plain, `"stringData":{"password":"correct-horse"}`) {
		t.Errorf("%v, %s", err, plain)
	}
}
