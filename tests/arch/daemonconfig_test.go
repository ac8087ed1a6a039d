package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// readers are where the fields of a daemon's configuration have to be read; nothing: by any daemon.
var readers = map[string][]string{
	"Etcd": {"../../cmd/etcd"}, "APIServer": {"../../daemons/apiserver"}, "Scheduler": {"../../daemons/scheduler"}, "ControllerManager": {"../../daemons/controllers"},
	"DNS": {"../../daemons/dns"}, "Kubelet": {"../../daemons/kubelet", "../../cmd/clusterctl"}, "KubeletFile": {"../../daemons/kubelet"},
	"KubeletAuthentication": {"../../daemons/kubelet"}, "KubeletAuthorization": {"../../daemons/kubelet"}, "Proxy": {"../../daemons/proxy"},
	"Network": {"../../daemons/network"}, "Address": {"../../daemons/address"}, "MetricsServer": {"../../daemons/metrics"},
}

// configurations are what variables and fields that hold a configuration are called, so that fields of the same name in other types
// do not count.
var configurations = []string{"cfg", "file", "f", "Config", "Authentication", "Authorization", "X509", "t", "taint"}

// What a daemon may be told is carried out, or refused at its start: a field that nothing reads would be accepted and ignored.
func TestEveryFieldOfADaemonsConfigurationIsRead(t *testing.T) {
	fields := 0
	eachFile(t, "../../daemons/config", func(f *ast.File) {
		if f.Name.Name != "config" { // what programs are asked, and answer
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
			where := readers[spec.Name.Name]
			if where == nil {
				where = []string{"../../daemons"}
			}
			read := reads(t, where)
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					fields++
					if !read[name.Name] {
						t.Errorf("nothing in %s reads %s.%s: carry it out, refuse it at the start, or remove it", strings.Join(where, " and "), spec.Name.Name, name.Name)
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

// reads are the names of the fields of configurations that the code below some directories reads.
func reads(t *testing.T, roots []string) map[string]bool {
	read := map[string]bool{}
	for _, root := range roots {
		eachFile(t, root, func(f *ast.File) {
			if f.Name.Name == "config" {
				return
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
				if slices.Contains(configurations, of) {
					read[s.Sel.Name] = true
				}
				return true
			})
		})
	}
	return read
}
