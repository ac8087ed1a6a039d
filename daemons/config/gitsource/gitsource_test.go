package gitsource

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestConstraintsSelectTheLatestVersion(t *testing.T) {
	tags := []string{"v0.1.0", "v0.1.5", "v0.2.0", "v1.0.0", "1.0.0", "v1.2.3", "v1.2.10", "v1.3.0-rc.1", "v1.3.0-rc.2",
		"v2.0.0", "v3.0.0-alpha", "nightly", "v1", "v1.2", "v1.2.3.4", "v99999999999999999999.0.0", "v1.9.9+" +
			strings.Repeat("x", 256)}
	for _, row := range []struct{ constraint, want string }{
		{"1.x", "v1.2.10"},
		{"1", "v1.2.10"},
		{"*", "v2.0.0"},
		{"^1.0", "v1.2.10"},
		{"~1.2.3", "v1.2.10"},
		{"~1.2", "v1.2.10"},
		{"^0.1.0", "v0.1.5"},
		{"^0.1", "v0.1.5"},
		{"1.0.0", "1.0.0"},
		{"=1.2.3", "v1.2.3"},
		{">=1.2.0 <2.0.0", "v1.2.10"},
		{">= 1.2.0, < 1.2.5", "v1.2.3"},
		{"<1.0.0 || >=2.0.0", "v2.0.0"},
		{">1", "v2.0.0"},
		{"<=1", "v1.2.10"},
		{"<1 ", "v0.2.0"},
		{">=1.3.0-rc.1 <1.4.0", "v1.3.0-rc.2"},
		{">=1.0.0 !=1.2.10 <2.0.0", "v1.2.3"},
		{">=4.0.0", ""},
	} {
		c, err := ParseConstraint(row.constraint)
		if err != nil {
			t.Errorf("%q: %v", row.constraint, err)
			continue
		}
		slices.Reverse(tags)
		if got, _ := c.Latest(tags); got != row.want {
			t.Errorf("%q selects %q, want %q", row.constraint, got, row.want)
		}
	}
	for _, text := range []string{"", "latest", ">", "1.2.3.4", "1 ||", ">=a", "^", "1.x-rc.1", "~>1.2",
		strings.Repeat("1 ", 200)} {
		if _, err := ParseConstraint(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestVersionsHaveThePrecedenceOfTheSpecification(t *testing.T) {
	order := []string{"1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11",
		"1.0.0-rc.1", "1.0.0", "1.0.1", "1.1.0", "2.0.0"}
	for i, a := range order {
		for j, b := range order {
			v, _ := ParseSemanticVersion(a)
			w, _ := ParseSemanticVersion(b)
			if got := v.Compare(w); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s compare as %d", a, b, got)
			}
		}
	}
}

func FuzzConstraint(f *testing.F) {
	f.Add(">=1.2.0 <2.0.0 || ~3", "v1.2.3-rc.1+x")
	f.Fuzz(func(t *testing.T, constraint, tag string) {
		c, err := ParseConstraint(constraint)
		if err != nil {
			return
		}
		v, ok := ParseSemanticVersion(tag)
		latest, found := c.Latest([]string{tag})
		if found != (ok && c.Matches(v)) || found && latest != tag {
			t.Errorf("Latest(%q) of %q is %q, %v", tag, constraint, latest, found)
		}
	})
}

func TestProblemsNameTheField(t *testing.T) {
	const good = `{"url":"https://git.example/a.git"`
	const oci = `{"url":"oci://registry.example:5000/team/my-app"`
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, row := range []struct{ spec, field string }{
		{good + `}`, ""},
		{good + `,"branch":"main","path":"clusters/home","interval":"1m"}`, ""},
		{`{"url":"git@git.example:team/a.git"}`, ""},
		{`{"url":"ssh://git@git.example:2222/team/a.git","semver":"1.x"}`, ""},
		{`{"url":"file:///srv/platform"}`, ""},
		{`{}`, "url"},
		{`{"url":"ftp://git.example/a"}`, "url"},
		{`{"url":"https://git.example"}`, "url"},
		{`{"url":"https://u:p@git.example/a"}`, "url"},
		{`{"url":"https://token@git.example/a"}`, "url"},
		{`{"url":"ssh://git:p@git.example/a"}`, "url"},
		{`{"url":"file://host/a"}`, "url"},
		{`{"url":"-oProxyCommand=x"}`, "url"},
		{good + `,"branch":"a","tag":"b"}`, "tag"},
		{good + `,"branch":"--upload-pack=x"}`, "branch"},
		{good + `,"tag":"a..b"}`, "tag"},
		{good + `,"commit":"abc"}`, "commit"},
		{good + `,"semver":"latest"}`, "semver"},
		{good + `,"path":"../other"}`, "path"},
		{good + `,"path":"a/../../b"}`, "path"},
		{good + `,"path":"/etc"}`, "path"},
		{good + `,"interval":"1s"}`, "interval"},
		{good + `,"timeout":"48h"}`, "timeout"},
		{good + `,"drift":"ignore"}`, "drift"},
		{good + `,"renderer":"jsonnet"}`, "renderer"},
		{good + `,"serviceAccount":"A b"}`, "serviceAccount"},
		{good + `,"targetNamespace":"a.b"}`, "targetNamespace"},
		{good + `,"proxy":"proxy:3128"}`, "proxy"},
		{good + `,"proxy":"http://u:p@proxy:3128"}`, "proxy"},
		{good + `,"dependsOn":[{"name":""}]}`, "dependsOn"},
		{good + `,"renderer":"yaml","helm":{}}`, "helm"},
		{good + `,"helm":{"release":"A"}}`, "helm.release"},
		{good + `,"helm":{"valuesFrom":[{"kind":"Pod","name":"a"}]}}`, "helm.valuesFrom"},
		{good + `,"verify":{"secret":"signers"}}`, ""},
		{good + `,"semver":"1.x","verify":{"mode":"tag","secret":"signers"}}`, ""},
		{good + `,"verify":{"mode":"tag","secret":"signers"}}`, "verify.mode"},
		{good + `,"verify":{"mode":"all","secret":"signers"}}`, "verify.mode"},
		{good + `,"verify":{"mode":"head"}}`, "verify.secret"},
		{good + `,"decryption":{"secret":"age"}}`, ""},
		{good + `,"digest":"` + digest + `"}`, "digest"},
		{oci + `}`, ""},
		{oci + `,"digest":"` + digest + `"}`, ""},
		{oci + `,"digest":"sha256:abc"}`, "digest"},
		{oci + `,"tag":"v1","digest":"` + digest + `"}`, "digest"},
		{oci + `,"semver":"1.x","path":"apps"}`, ""},
		{oci + `,"branch":"main"}`, "branch"},
		{oci + `,"tag":"a/b"}`, "tag"},
		{oci + `,"verify":{"secret":"signers"}}`, "verify"},
		{oci + `,"helm":{"chart":"web"}}`, "helm.chart"},
		{`{"url":"oci://registry.example/Team/app"}`, "url"},
		{`{"url":"oci://registry.example/app:v1"}`, "url"},
		{`{"url":"oci://registry.example/../app"}`, "url"},
		{`{"url":"oci://u:p@registry.example/app"}`, "url"},
		{good + `,"helm":{"chart":"web","version":">=1.2 <2"}}`, ""},
		{good + `,"helm":{"chart":"../web"}}`, "helm.chart"},
		{good + `,"helm":{"chart":"web","version":"latest"}}`, "helm.version"},
		{good + `,"helm":{"version":"1.x"}}`, "helm.version"},
		{good + `,"path":"web","helm":{"chart":"web"}}`, "path"},
		{good + `,"tag":"v1","helm":{"chart":"web"}}`, "tag"},
		{good + `,"verify":{"secret":"a"},"helm":{"chart":"web"}}`, "verify"},
		{`{"url":"git@git.example:a.git","helm":{"chart":"web"}}`, "helm.chart"},
		{good + `,"decryption":{}}`, "decryption.secret"},
		{`{"url":"file:///srv/a","verify":{"secret":"signers"}}`, "verify"},
	} {
		var s Spec
		if err := json.Unmarshal([]byte(row.spec), &s); err != nil {
			t.Fatalf("%s: %v", row.spec, err)
		}
		problems := s.Problems()
		if row.field == "" && len(problems) > 0 || row.field != "" &&
			(len(problems) != 1 || problems[0].Field != row.field) {
			t.Errorf("%s: %v, want one of %q", row.spec, problems, row.field)
		}
	}
}

func TestDefaultsApplyToFieldsThatAreNotSet(t *testing.T) {
	s := Spec{}
	no := false
	if !s.Prunes() || s.DriftPolicy() != DriftRevert || s.Every() != DefaultInterval || s.Retry() != DefaultRetry ||
		s.Limit() != DefaultTimeout {
		t.Error("a zero field does not mean the documented default")
	}
	s = Spec{Prune: &no, Drift: DriftReport, Interval: &metav1.Duration{Duration: time.Minute},
		ServiceAccount: "deploy"}
	if s.Prunes() || s.DriftPolicy() != DriftReport || s.Every() != time.Minute || s.AccountIn("shop") != "deploy" {
		t.Error("a field that is set is not used")
	}
	// A source in another namespace never gets the rights of the cluster's own sources.
	if s := (&Spec{}); s.AccountIn("shop") != DefaultAccount || s.AccountIn(Namespace) != Account {
		t.Error("wrong default accounts")
	}
}

// Otherwise the API server would drop the field, or the controller could not read it.
func TestDefinitionSchemaMatchesGoTypes(t *testing.T) {
	var definition struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group    string
			Names    struct{ Kind, Plural string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema schemaNode }
			}
		}
	}
	if err := yaml.Unmarshal(Definition, &definition); err != nil {
		t.Fatal(err)
	}
	spec := definition.Spec
	if definition.Metadata.Name != Resource+"."+Group || spec.Group != Group || spec.Names.Kind != Kind ||
		spec.Names.Plural != Resource || len(spec.Versions) != 1 || spec.Versions[0].Name != Version {
		t.Errorf("the names are others: %+v", definition.Metadata)
	}
	root := spec.Versions[0].Schema.OpenAPIV3Schema
	compareFields(t, "spec", reflect.TypeFor[Spec](), root.Properties["spec"])
	compareFields(t, "status", reflect.TypeFor[Status](), root.Properties["status"])
}

// Otherwise a configuration would be accepted whose GitSource the API server refuses.
func TestProblemsIncludeTheBoundsOfTheDefinition(t *testing.T) {
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schemaNode }
			}
		}
	}
	if err := yaml.Unmarshal(Definition, &definition); err != nil {
		t.Fatal(err)
	}
	schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	helm := schema.Properties["helm"]
	entry := helm.Properties["valuesFrom"].Items.Properties
	const url = "https://git.example/"
	long := func(n int) string { return strings.Repeat("a", n) }
	values := func(n int, key string) map[string]any {
		list := slices.Repeat([]any{map[string]any{"kind": "Secret", "name": "a", "key": key}}, n)
		return map[string]any{"helm": map[string]any{"valuesFrom": list}}
	}
	rows := map[string]func(n int) map[string]any{
		"url":   func(n int) map[string]any { return map[string]any{"url": url + long(n-len(url))} },
		"proxy": func(n int) map[string]any { return map[string]any{"proxy": "http://" + long(n-len("http://"))} },
	}
	for _, field := range []string{"branch", "tag", "path", "serviceAccount", "secret", "targetNamespace"} {
		rows[field] = func(n int) map[string]any { return map[string]any{field: long(n)} }
	}
	bounds := map[string]int{"helm.valuesFrom": helm.Properties["valuesFrom"].MaxItems}
	for field := range rows {
		bounds[field] = schema.Properties[field].MaxLength
	}
	for _, path := range []string{"verify.secret", "decryption.secret", "helm.chart", "helm.version"} {
		group, field, _ := strings.Cut(path, ".")
		bounds[path] = schema.Properties[group].Properties[field].MaxLength
		rows[path] = func(n int) map[string]any {
			return map[string]any{group: map[string]any{field: long(n)}}
		}
	}
	rows["helm.valuesFrom"] = func(n int) map[string]any { return values(n, "a") }
	rows["key"] = func(n int) map[string]any { return values(1, long(n)) }
	bounds["key"] = entry["key"].MaxLength
	for field, spec := range rows {
		content := spec(bounds[field] + 1)
		if content["url"] == nil {
			content["url"] = url + "a.git"
		}
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		var s Spec
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if bounds[field] == 0 || len(s.Problems()) == 0 {
			t.Errorf("%s with more than %d is accepted", field, bounds[field])
		}
	}
}

type schemaNode struct {
	Type       string
	MaxLength  int
	MaxItems   int
	Properties map[string]schemaNode
	Items      *schemaNode
}

// compareFields compares the fields of a type with those of a schema.
func compareFields(t *testing.T, path string, of reflect.Type, schema schemaNode) {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() == reflect.Slice {
		if schema.Items == nil {
			t.Errorf("%s is no list in the definition", path)
			return
		}
		compareFields(t, path+"[]", of.Elem(), *schema.Items)
		return
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[metav1.Duration]() || of == reflect.TypeFor[metav1.Time]() {
		if schema.Type == "" {
			t.Errorf("the definition has no %s", path)
		}
		return
	}
	names := map[string]bool{}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names[name] = true
		compareFields(t, path+"."+name, of.Field(i).Type, schema.Properties[name])
	}
	for name := range schema.Properties {
		if !names[name] {
			t.Errorf("the type has no %s.%s", path, name)
		}
	}
}
