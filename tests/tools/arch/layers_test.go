// Package arch checks the structure of the repository: the layer of each package, what it may import, and that every
// package has a doc comment.
package arch

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers are listed from the bottom up: a package imports from its own layer and those above it in this list. The
// longest matching prefix determines a package's layer.
var layers = []struct {
	name     string
	packages []string
}{
	{"words", []string{"hcl/config", "daemons/config", "daemons/api", "daemons/version", "daemons/libraries",
		"certs", "kube/scheme"}},
	{"decisions", []string{
		"hcl/block", "provision/host", "provision/step", "provision/role", "provision/plan", "provision/image",
		"provision/bundle", "provision/packet", "provision/state", "provision/support",
		"daemons/kinds", "daemons/scheduler/cluster", "daemons/scheduler/device", "daemons/scheduler/plugin",
		"daemons/scheduler/profile", "daemons/kubelet/pod", "daemons/ingress/route", "daemons/nft",
		"daemons/proxy/rules", "daemons/network/policy", "daemons/dns/wire", "daemons/dns/zone",
	}},
	{"edges", []string{
		"hcl/convert", "hcl/data", "hcl/load", "hcl/lsp",
		"provision/host/ssh", "provision/host/local", "provision/agent",
		"kube", "daemons/store", "daemons/client", "daemons/run", "daemons/floating",
		"daemons/kubelet/cri", "daemons/kubelet/image", "daemons/kubelet/device", "daemons/kubelet/cgroup",
		"daemons/kubelet/volume", "daemons/kubelet/probe", "daemons/kubelet/hollow", "daemons/kubelet/logs",
		"daemons/kubelet/machine", "daemons/kubelet/metrics", "daemons/kubelet/usage", "daemons/kubelet/sleep",
		"daemons/kubelet/certificate", "daemons/proxy/flows",
		"daemons/proxy/iptables", "daemons/proxy/relay", "daemons/nft/kernel", "daemons/dns/upstream",
	}},
	{"loops", []string{"provision", "daemons"}},
	{"wiring", []string{"cmd", "tests", "examples"}},
}

// daemonPackages are the daemons, which communicate only through the API server.
var daemonPackages = []string{
	"apiserver",
	"scheduler",
	"controllers",
	"kubelet",
	"network",
	"proxy",
	"dns",
	"address",
	"metrics",
	"ingress",
	"gitops",
	"dashboard",
}

// packageFields are the fields of packageInfo.
const packageFields = "ImportPath,Name,Doc,Imports,TestImports,XTestImports,GoFiles"

// packageInfo is what go list prints of a package.
type packageInfo struct {
	ImportPath   string
	Name         string
	Doc          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
}

func listPackages(t *testing.T) []packageInfo {
	t.Helper()
	cmd := exec.Command("go", "list", "-tags", "grpcnotrace", "-json="+packageFields, "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []packageInfo
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p packageInfo
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, "clusterctl/")
		all = append(all, p)
	}
	return all
}

func layerOf(path string) int {
	best, at := -1, -1
	for i, l := range layers {
		for _, prefix := range l.packages {
			if (path == prefix || strings.HasPrefix(path, prefix+"/")) && len(prefix) > best {
				best, at = len(prefix), i
			}
		}
	}
	return at
}

func TestEveryPackageImportsFromItsLayerUpwards(t *testing.T) {
	for _, p := range listPackages(t) {
		mine := layerOf(p.ImportPath)
		if mine < 0 {
			t.Errorf("%s is in no layer: name it in this test, or find it a room", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			other, ok := strings.CutPrefix(i, "clusterctl/")
			if !ok {
				continue
			}
			if theirs := layerOf(other); theirs > mine {
				t.Errorf("%s (%s) imports %s (%s)", p.ImportPath, layers[mine].name, other, layers[theirs].name)
			}
		}
	}
}

func TestProvisioningAndDaemonsDoNotImportEachOther(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, i := range p.Imports {
			other, ok := strings.CutPrefix(i, "clusterctl/")
			if !ok {
				continue
			}
			switch {
			case strings.HasPrefix(p.ImportPath, "provision/") && strings.HasPrefix(other, "daemons/"):
				if other != "daemons/config" && other != "daemons/config/store" &&
					other != "daemons/config/inventory" && other != "daemons/config/gitsource" &&
					other != "daemons/version" {
					t.Errorf("%s imports %s: provision knows the daemons by their configuration alone", p.ImportPath,
						other)
				}
			case strings.HasPrefix(p.ImportPath, "daemons/") &&
				(strings.HasPrefix(other, "provision/") || strings.HasPrefix(other, "hcl/")):
				t.Errorf("%s imports %s: the daemons know nothing of how they came to be", p.ImportPath, other)
			}
		}
	}
}

// runPackages are the packages below provision/run in import order: each imports only from those before it.
var runPackages = []string{
	"report", "ledger", "session", "certificate", "etcd", "decide", "health", "roll", "leave", "objects", "rotation",
	"survey", "rebuild",
}

func TestPackagesOfARunImportInOneDirection(t *testing.T) {
	const root = "provision/run"
	found := map[string]bool{}
	for _, p := range listPackages(t) {
		name, ok := strings.CutPrefix(p.ImportPath, root+"/")
		if !ok {
			continue
		}
		mine := slices.Index(runPackages, name)
		if mine < 0 {
			t.Errorf("%s is not in the list of this test", p.ImportPath)
			continue
		}
		found[name] = true
		for _, i := range p.Imports {
			other, ok := strings.CutPrefix(i, "clusterctl/"+root)
			if !ok {
				continue
			}
			if at := slices.Index(runPackages, strings.TrimPrefix(other, "/")); at < 0 || at >= mine {
				t.Errorf("%s imports %s, which comes after it", p.ImportPath, i)
			}
		}
	}
	for _, name := range runPackages {
		if !found[name] {
			t.Errorf("there is no package %s/%s", root, name)
		}
	}
}

// Daemons do not import each other.
// Proves S07.
func TestDaemonsCommunicateOnlyThroughTheAPIServer(t *testing.T) {
	program := func(path string) string {
		for _, name := range daemonPackages {
			if path == "daemons/"+name || strings.HasPrefix(path, "daemons/"+name+"/") {
				return name
			}
		}
		return ""
	}
	for _, p := range listPackages(t) {
		mine := program(p.ImportPath)
		if mine == "" {
			continue
		}
		for _, i := range p.Imports {
			if theirs := program(strings.TrimPrefix(i, "clusterctl/")); theirs != "" && theirs != mine {
				t.Errorf("%s imports %s: daemons never call each other", p.ImportPath, i)
			}
		}
		if mine != "apiserver" {
			for _, i := range p.Imports {
				if strings.HasPrefix(i, "clusterctl/daemons/store") || strings.HasPrefix(i, "go.etcd.io/") {
					t.Errorf("%s imports %s: only the API server talks to etcd", p.ImportPath, i)
				}
			}
		}
	}
}

func TestEveryPackageHasADocComment(t *testing.T) {
	for _, p := range listPackages(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// apiserverRooms are the parts of the API server in their import order: each imports only those before it. The root,
// daemons/apiserver, wires them, so none of them imports it.
var apiserverRooms = []string{
	"request", "identity", "body", "ownership", "read", "stream", "write", "upkeep", "extend", "aggregate",
}

func TestPartsOfTheAPIServerImportOnlyEarlierParts(t *testing.T) {
	const root = "daemons/apiserver"
	order := map[string]int{}
	for i, name := range apiserverRooms {
		order[root+"/"+name] = i
	}
	for _, p := range listPackages(t) {
		mine, isRoom := order[p.ImportPath]
		if !strings.HasPrefix(p.ImportPath, root+"/") {
			continue
		}
		for _, i := range p.Imports {
			other := strings.TrimPrefix(i, "clusterctl/")
			theirs, isOther := order[other]
			switch {
			case other == root:
				t.Errorf("%s imports %s, which wires it", p.ImportPath, root)
			case isOther && !isRoom:
				t.Errorf("%s imports %s, which is built on it", p.ImportPath, other)
			case isOther && theirs > mine:
				t.Errorf("%s imports %s, which comes after it", p.ImportPath, other)
			}
		}
	}
}

// A request is complete when a part of the API server answers it. A part that needs another request takes a copy. The
// first two parts have the stages that complete a request.
func TestPartsOfTheAPIServerDoNotChangeRequests(t *testing.T) {
	for _, name := range apiserverRooms[2:] {
		files, err := filepath.Glob("../../../daemons/apiserver/" + name + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				assignment, ok := n.(*ast.AssignStmt)
				if !ok {
					return true
				}
				for _, to := range assignment.Lhs {
					if field, ok := to.(*ast.SelectorExpr); ok && isRequest(field.X) {
						t.Errorf("%s sets %s of a request", strings.TrimPrefix(file, "../../../"), field.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

// isRequest reports whether an expression is a request, by the name that requests have everywhere.
func isRequest(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "q"
	case *ast.SelectorExpr:
		return x.Sel.Name == "q"
	}
	return false
}
