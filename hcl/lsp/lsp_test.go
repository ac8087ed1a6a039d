package lsp

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
)

const cluster = `cluster "c" {}
machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
variable "zones" {
  type = map(string)
}
locals {
  image = "nginx"
}
data "file" "motd" { path = "cluster.hcl" }
module "shop" {
  source = "./shop"
}
`

func testFiles() map[string]string {
	return map[string]string{
		"cluster.hcl":   cluster,
		"shop/shop.hcl": `output "host" { value = "x" }` + "\n",
		"web.hcl":       "",
	}
}

func TestDiagnosticsArePublishedOnEveryChange(t *testing.T) {
	c := newClient(t, testFiles())
	c.open("web.hcl", "workload \"web\" {\n  container \"ü\" { imag = \"x\" }\n}\n")
	list := c.nextDiagnostics("web.hcl")
	if len(list) != 1 || !strings.Contains(list[0].Message, `Did you mean "image"`) ||
		list[0].Range.Start != (position{1, 18}) || list[0].Severity != 1 {
		t.Errorf("opened: %+v", list)
	}
	c.notify(
		"textDocument/didChange",
		map[string]any{
			"textDocument": map[string]any{"uri": c.uri("web.hcl"), "version": 2},
			"contentChanges": []any{
				map[string]any{"text": "workload \"web\" {\n  container \"a\" { image = local.imgae }\n}\n"},
			},
		},
	)
	if list := c.nextDiagnostics("web.hcl"); len(list) != 1 || !strings.Contains(list[0].Message, `Did you mean "image"`) {
		t.Errorf("changed: %+v", list)
	}
	c.notify(
		"textDocument/didChange",
		map[string]any{
			"textDocument": map[string]any{"uri": c.uri("web.hcl"), "version": 3},
			"contentChanges": []any{
				map[string]any{"range": textRange{position{1, 32}, position{1, 37}}, "text": "image"},
			},
		},
	)
	if list := c.nextDiagnostics("web.hcl"); len(list) != 0 {
		t.Errorf("mended: %+v", list)
	}
	c.notify("textDocument/didClose", map[string]any{"textDocument": map[string]any{"uri": c.uri("web.hcl")}})
	if list := c.nextDiagnostics("web.hcl"); len(list) != 0 {
		t.Errorf("closed: %+v", list)
	}
}

func TestCompletionOffersWhatIsValidAtThePosition(t *testing.T) {
	for name, row := range map[string]struct {
		text         string
		offers, less string // words
	}{
		"blocks": {"wo|", "workload machine module data variable", "image_pull replicas upper"},
		"attributes": {"workload \"w\" {\n  re|\n}\n", "replicas container for_each precondition " +
			"depends_on", "local upper archive"},
		"settings of a daemon": {"cluster \"c\" {\n  kubelet {\n    |\n  " +
			"}\n}\n", "max_pods eviction_hard pod_pids_limit", "node_monitor_period pod_cidrs"},
		"settings of a machine": {"machine \"m\" {\n  kubelet {\n    |\n  " +
			"}\n}\n", "max_pods container_log_max_size", "roles"},
		"settings beside others": {"cluster \"c\" {\n  dns {\n    |\n  " +
			"}\n}\n", "replicas upstream cache_ttl", "bind_address"},
		"attributes inside": {"workload \"w\" {\n  container \"c\" {\n    |\n  " +
			"}\n}\n", "image ports readiness", "replicas container"},
		"inside a dynamic block": {"workload \"w\" {\n  dynamic \"volume\" {\n    content {\n      |\n    }\n  " +
			"}\n}\n", "host_path empty_dir", "replicas"},
		"of data by its kind": {"data \"external\" \"x\" {\n  |\n}\n", "program query timeout", "path"},
		"words and functions": {"output \"x\" { value = |", "local var machine module upper cidrhost " +
			"each", "replicas"},
		"names":           {"output \"x\" { value = machine.| }\n", "m", "zones upper"},
		"names in a text": {"output \"x\" { value = \"a ${local.|} b\" }\n", "image", "m"},
		"names while a line is begun": {"workload \"w\" {\n  namespace = var.|\n  container \"c\" { image = \"x\" " +
			"}\n}\n", "zones", "image"},
		"attributes of a value":     {"output \"x\" { value = machine.m.| }\n", "name address roles labels", "image"},
		"kinds of data":             {"output \"x\" { value = data.| }\n", "file", "motd"},
		"names of data":             {"output \"x\" { value = data.file.| }\n", "motd", "file"},
		"outputs of a module":       {"output \"x\" { value = module.shop.| }\n", "host", "source"},
		"after an unfinished block": {"machine \"n\" {\n  roles = [local.|", "image", "m"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, testFiles())
			found := c.labels(c.open("web.hcl", row.text))
			for _, word := range strings.Fields(row.offers) {
				if _, ok := found[word]; !ok {
					t.Errorf("%s is not offered: %v", word, found)
				}
			}
			for _, word := range strings.Fields(row.less) {
				if _, ok := found[word]; ok {
					t.Errorf("%s is offered", word)
				}
			}
		})
	}
}

func TestHoverShowsTheMeaningOfAWord(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"a block": {"work|load \"w\" {}\n", "A Deployment with its Service"},
		"an attribute": {"workload \"w\" {\n  repli|cas = 1\n}\n", "**replicas** number, default 1; with " +
			"autoscaling, the autoscaler's\n\nNumber of pods. Only in the kinds Deployment and StatefulSet."},
		"a block inside": {"workload \"w\" {\n  conta|iner \"c\" {}\n}\n", "A container of the pods."},
		"a function":     {"output \"x\" { value = cidr|host(\"192.0.2.0/24\", 1) }\n", "`cidrhost(prefix, hostnum)`"},
		"a reference":    {"output \"x\" { value = machine.|m.name }\n", "declared in cluster.hcl:2"},
		"nothing":        {"output \"x\" { value = | }\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, testFiles())
			var h *hover
			if err := json.Unmarshal(c.request("textDocument/hover", c.open("web.hcl", row.text)), &h); err != nil {
				t.Fatal(err)
			}
			got := ""
			if h != nil {
				got = h.Contents.Value
			}
			if !strings.Contains(got, row.want) || row.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func TestDefinitionsPointToDeclarations(t *testing.T) {
	for name, row := range map[string]struct {
		text, file string
		line       int
	}{
		"a machine":             {"output \"x\" { value = machine.m|.name }\n", "cluster.hcl", 1},
		"a variable":            {"output \"x\" { value = var.zo|nes }\n", "cluster.hcl", 5},
		"a local":               {"output \"x\" { value = \"${local.im|age}\" }\n", "cluster.hcl", 9},
		"data":                  {"output \"x\" { value = data.file.mo|td.content }\n", "cluster.hcl", 11},
		"an output of a module": {"output \"x\" { value = module.shop.ho|st }\n", "shop/shop.hcl", 0},
		"a module's folder":     {"module \"again\" {\n  source = \"./sh|op\"\n}\n", "shop/shop.hcl", 0},
		"with an index":         {"output \"x\" { value = machine.m[\"a\"].na|me }\n", "cluster.hcl", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, testFiles())
			var l []location
			if err := json.Unmarshal(c.request("textDocument/definition", c.open("web.hcl", row.text)),
				&l); err != nil {
				t.Fatal(err)
			}
			if len(l) != 1 || l[0].URI != c.uri(row.file) || l[0].Range.Start.Line != row.line {
				t.Errorf("%+v", l)
			}
		})
	}
}

func TestSymbolsAndFormattingOfADocument(t *testing.T) {
	c := newClient(t, testFiles())
	place := c.open("web.hcl", "locals {\n a=1\n  bb = 2\n}\nworkload \"web\" {\n}\n|")
	var list []symbol
	if err := json.Unmarshal(c.request("textDocument/documentSymbol", place), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || list[0].Name != "local.a" || list[2].Name != "workload.web" || list[2].Range.Start.Line != 4 {
		t.Errorf("symbols: %+v", list)
	}
	var edits []edit
	if err := json.Unmarshal(c.request("textDocument/formatting", place), &edits); err != nil {
		t.Fatal(err)
	}
	if want := "locals {\n  a  = 1\n  bb = 2\n}\nworkload \"web\" {\n}\n"; len(edits) != 1 || edits[0].NewText != want {
		t.Errorf("formatting: %+v", edits)
	}
}

func TestUnknownMethodsAndUnopenedDocumentsFail(t *testing.T) {
	c := newClient(t, testFiles())
	if got := string(c.request("textDocument/dance", nil)); !strings.Contains(got, "no method") {
		t.Error(got)
	}
	if got := string(c.request("textDocument/hover",
		map[string]any{"textDocument": map[string]any{"uri": c.uri("other.hcl")}})); !strings.Contains(got,
		"not open") {
		t.Error(got)
	}
	if got := string(c.request("shutdown", nil)); got != "null" {
		t.Errorf("shutdown: %s", got)
	}
}

func TestTooLongMessagesAreRejected(t *testing.T) {
	for _, text := range []string{"Content-Length: 99999999999\r\n\r\n", "Content-Length: " +
		"-1\r\n\r\n", "Content-Length: x\r\n\r\n", strings.Repeat("a", 10000), "A: b\r\n\r\n"} {
		if _, err := readMessage(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%.40q is read", text)
		}
	}
}

// FuzzPlaces sends all requests at positions of incomplete texts.
func FuzzPlaces(f *testing.F) {
	f.Add(cluster, 30)
	f.Add("workload \"w\" {\n  dynamic \"volume\" {\n content { ", 40)
	f.Add("output \"x\" { value = \"${machine.m[", 34)
	f.Fuzz(func(t *testing.T, text string, at int) {
		s := &server{texts: map[string]string{"/nowhere/a.hcl": text}}
		p := documentPosition{"/nowhere/a.hcl", text, min(max(at, 0), len(text))}
		for _, answer := range []func(*server, documentPosition) any{complete, describe, define, symbols, format} {
			answer(s, p)
		}
	})
}
