package plan

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"clusterctl/provision/step"
)

// A plan as a page has the content of the text in the order of the run. Nothing in it is interpreted as markup, and it
// contains no secret.
// Proves P02.
func TestPlansAreWrittenAsPages(t *testing.T) {
	p := &Plan{
		Cluster: "home", Etcd: "etcd: 3 members, survives the loss of 1.", Warnings: []string{"a <b> is slow"},
		Machines: []Machine{
			{
				Address: `machine.node["a"]`,
				Action:  Change,
				Note:    "restart kubelet",
				Changes: []step.Change{
					{
						Kind:   "file",
						Name:   "/etc/x",
						Action: step.Update,
						Diff:   []string{"- was", "+ <script>alert(1)</script>"},
					},
				},
			},
			{Address: "machine.b", Action: Create, Note: "debian 12"},
			{Address: "machine.well"},
		},
		Objects: []Object{
			{
				Address: "object.x",
				Kind:    "ConfigMap",
				Name:    "default/x",
				Action:  Change,
				Diff:    []string{"data.a: 1 → s&cret"},
				Note:    "was s&cret",
			},
		},
		Stages: []Stage{
			{Title: "Set up new machines", Machines: []string{"machine.b"}},
			{Title: "Apply objects", Objects: 1, InParallel: true},
			{Title: "Change nodes", Machines: []string{`machine.node["a"]`, "machine.b"}, Parallelism: 1},
		},
	}
	var out strings.Builder
	if err := p.Page(&out, []string{"s&cret"}); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if strings.Contains(page, "cret") || !strings.Contains(page, "(sensitive") {
		t.Errorf("a secret is shown, or nothing says that there is one:\n%s", page)
	}
	text, links, anchors := readPage(t, page)
	at := 0
	for _, want := range []string{"Plan for cluster home", "1 to create, 1 to change, 0 to remove; objects: 1 to " +
		"change", "survives the loss of 1", "a <b> is slow", "Set up new machines", "machine.b", "Apply objects",
		"(1 object)",
		"Change nodes", "(one after the other)", `machine.node["a"]`, "restart kubelet", "/etc/x", "- was", "+ <script>alert(1)</script>", "debian 12", "ConfigMap default/x"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q does not come after what comes before it:\n%s", want, text)
		}
		at += i
	}
	if strings.Contains(text, "machine.well") {
		t.Error("a machine of which nothing changes is shown")
	}
	for link := range links {
		if id, err := url.PathUnescape(link); err != nil || !anchors[id] {
			t.Errorf("a box leads to %q, of %v: %v", link, anchors, err)
		}
	}
}

// readPage returns the text of a page, and the links and anchors within it.
func readPage(t *testing.T, page string) (text string, links, anchors map[string]bool) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	links, anchors = map[string]bool{}, map[string]bool{}
	for n := range root.Descendants() {
		if n.Type == html.TextNode && strings.TrimSpace(n.Data) != "" {
			texts = append(texts, strings.TrimSpace(n.Data))
		}
		if n.Data == "script" || n.Data == "b" {
			t.Errorf("the text of a machine became the element <%s>", n.Data)
		}
		for _, a := range n.Attr {
			switch a.Key {
			case "href":
				links[strings.TrimPrefix(a.Val, "#")] = true
			case "id":
				anchors[a.Val] = true
			}
		}
	}
	return strings.Join(texts, "\n"), links, anchors
}
