package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// configReaders are the directories in which the fields of a daemon's configuration must be read. Without an entry, any
// daemon may read them.
var configReaders = map[string][]string{
	"Etcd":                  {"../../../cmd/etcd"},
	"APIServer":             {"../../../daemons/apiserver"},
	"Scheduler":             {"../../../daemons/scheduler"},
	"ControllerManager":     {"../../../daemons/controllers"},
	"DNS":                   {"../../../daemons/dns"},
	"Kubelet":               {"../../../daemons/kubelet", "../../../cmd/clusterctl"},
	"KubeletFile":           {"../../../daemons/kubelet"},
	"KubeletAuthentication": {"../../../daemons/kubelet"},
	"KubeletAuthorization":  {"../../../daemons/kubelet"},
	"Proxy":                 {"../../../daemons/proxy"},
	"Network":               {"../../../daemons/network"},
	"Address":               {"../../../daemons/address"},
	"MetricsServer":         {"../../../daemons/metrics"},
	"Ingress":               {"../../../daemons/ingress"},
	"Dashboard":             {"../../../daemons/dashboard"},
	"GitOps":                {"../../../cmd/gitops"},
}

// blockConfigurations are the configurations whose settings are in a block of the language.
var blockConfigurations = []string{
	"Serving",
	"Scheduler",
	"ControllerManager",
	"Kubelet",
	"KubeletFile",
	"Proxy",
	"Network",
	"DNS",
	"Ingress",
	"GitOps",
}

// configNames are the names of variables and fields that hold a configuration, so that fields with the same name in
// other types do not count.
var configNames = []string{
	"cfg",
	"file",
	"File",
	"f",
	"Config",
	"Authentication",
	"Authorization",
	"X509",
	"t",
	"taint",
	"pool",
	"BGP",
	"peer",
}

// Every setting of a daemon is used, or refused when the daemon starts. Otherwise a field that no code reads would be
// accepted and ignored.
func TestEveryFieldOfADaemonsConfigurationIsRead(t *testing.T) {
	fields := 0
	eachFile(t, "../../../daemons/config", func(f *ast.File) {
		if f.Name.Name != "config" { // protocols of programs
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return false
			}
			where := configReaders[spec.Name.Name]
			if where == nil {
				where = []string{"../../../daemons"}
			}
			read, refused := readFields(t, where), readFields(t, nil)
			for _, field := range s.Fields.List {
				if field.Tag == nil { // not a setting of a daemon
					continue
				}
				for _, name := range field.Names {
					fields++
					setting := strings.Contains(field.Tag.Value, ` setting:"`)
					if setting && !slices.Contains(blockConfigurations, spec.Name.Name) {
						t.Errorf("%s.%s is a setting, and no block of hcl/block/settings.go has those of %s",
							spec.Name.Name, name.Name, spec.Name.Name)
					}
					if !read[name.Name] &&
						(setting || !refused[name.Name] && !strings.Contains(field.Tag.Value, ` refused:"`)) {
						t.Errorf("nothing in %s reads %s.%s: carry it out, refuse it at the start, or remove it",
							strings.Join(where, " and "), spec.Name.Name, name.Name)
					}
				}
			}
			return false
		})
	})
	if fields == 0 {
		t.Error("no fields were found")
	}
}

// readFields returns the names of configuration fields that the code below some directories reads, and of those that
// are parsed from files. Without directories, it returns the names that the validation reads.
func readFields(t *testing.T, roots []string) map[string]bool {
	read := map[string]bool{}
	within := func(name string) bool { return name == "ReadKubeletFile" }
	if roots == nil {
		within = func(name string) bool { return name == "problems" }
	}
	for _, root := range append(slices.Clone(roots), "../../../daemons/config") {
		eachFile(t, root, func(f *ast.File) {
			if f.Name.Name == "config" {
				f.Decls = slices.DeleteFunc(f.Decls, func(d ast.Decl) bool {
					function, ok := d.(*ast.FuncDecl)
					return !ok || !within(function.Name.Name)
				})
			}
			written := map[ast.Expr]bool{}
			ast.Inspect(f, func(n ast.Node) bool {
				if a, ok := n.(*ast.AssignStmt); ok {
					for _, to := range a.Lhs {
						written[to] = true
					}
				}
				s, ok := n.(*ast.SelectorExpr)
				if !ok || written[s] {
					return true
				}
				of := ""
				switch x := s.X.(type) {
				case *ast.Ident:
					of = x.Name
				case *ast.SelectorExpr:
					of = x.Sel.Name
				}
				if slices.Contains(configNames, of) {
					read[s.Sel.Name] = true
				}
				return true
			})
		})
	}
	return read
}
