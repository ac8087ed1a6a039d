package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"clusterctl/daemons/apiserver/authz"
)

// The account of each controller has a role of the same name. Only this test checks it, because the controllers and the
// API server do not import each other.
func TestEachControllersAccountHasARole(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../daemons/controllers/controllers.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	accounts := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		list, ok := n.(*ast.ValueSpec)
		if !ok || list.Names[0].Name != "all" {
			return true
		}
		for _, entry := range list.Values[0].(*ast.CompositeLit).Elts {
			fields := entry.(*ast.CompositeLit).Elts
			accounts[exprText(t, fields[0])] = exprText(t, fields[2])
		}
		return false
	})
	if len(accounts) == 0 {
		t.Fatal("no controller was found")
	}
	roles, bound := map[string]bool{}, map[string]bool{}
	for _, obj := range authz.Defaults() {
		var subjects []rbacv1.Subject
		name := ""
		switch o := obj.(type) {
		case *rbacv1.ClusterRole:
			roles[o.Name] = true
		case *rbacv1.Role:
			roles[o.Name] = true
		case *rbacv1.ClusterRoleBinding:
			subjects, name = o.Subjects, o.RoleRef.Name
		case *rbacv1.RoleBinding:
			subjects, name = o.Subjects, o.RoleRef.Name
		}
		for _, s := range subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "kube-system" &&
				name == "system:controller:"+s.Name {
				bound[s.Name] = true
			}
		}
	}
	for controller, account := range accounts {
		if account == "" || !roles["system:controller:"+account] || !bound[account] {
			t.Errorf("controller %s is the account %q, which has no role of that name", controller, account)
		}
	}
}

func exprText(t *testing.T, of ast.Expr) string {
	t.Helper()
	literal, ok := of.(*ast.BasicLit)
	if !ok {
		t.Fatalf("%T is no literal", of)
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
