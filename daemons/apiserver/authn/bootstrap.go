package authn

import (
	"context"
	"crypto/subtle"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// bootstrapUser and bootstrapGroup are upstream's user prefix and group of bootstrap tokens.
const (
	bootstrapUser  = "system:bootstrap:"
	bootstrapGroup = "system:bootstrappers"
)

var (
	bootstrapToken  = lazyPattern(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	bootstrapGroups = lazyPattern(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// lazyPattern compiles an expression at its first use, because most processes never use it.
func lazyPattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// bootstrap authenticates joining machines by bootstrap tokens, which are Secrets in kube-system.
type bootstrap struct {
	objects   api.Objects
	audiences []string
	now       func() time.Time
}

func (b *bootstrap) verify(_ context.Context, token string, wanted []string) (api.User, []string, error) {
	parts := bootstrapToken().FindStringSubmatch(token)
	if parts == nil {
		return api.User{}, nil, errOtherToken
	}
	id, secret := parts[1], parts[2]
	obj, ok := b.objects.Get(schema.GroupResource{Resource: "secrets"}, metav1.NamespaceSystem, "bootstrap-token-"+id)
	if !ok {
		return api.User{}, nil, errInvalidToken
	}
	s, ok := obj.(*corev1.Secret)
	if !ok || s.DeletionTimestamp != nil || s.Type != "bootstrap.kubernetes.io/token" ||
		string(s.Data["token-id"]) != id ||
		subtle.ConstantTimeCompare(s.Data["token-secret"], []byte(secret)) != 1 ||
		string(s.Data["usage-bootstrap-authentication"]) != "true" {
		return api.User{}, nil, errInvalidToken
	}
	if text := string(s.Data["expiration"]); text != "" {
		if until, err := time.Parse(time.RFC3339, text); err != nil || !b.now().Before(until) {
			return api.User{}, nil, fmt.Errorf("%w: the bootstrap token %s has expired", errInvalidToken, id)
		}
	}
	groups := []string{bootstrapGroup}
	for _, g := range strings.Split(string(s.Data["auth-extra-groups"]), ",") {
		if g = strings.TrimSpace(g); g == "" {
			continue
		}
		if !bootstrapGroups().MatchString(g) {
			return api.User{}, nil, fmt.Errorf(
				"%w: the bootstrap token %s names the group %q, which does not begin with %q", errInvalidToken, id, g,
				bootstrapGroup+":")
		}
		groups = append(groups, g)
	}
	audiences, err := audiencesOf(b.audiences, wanted, b.audiences)
	return api.User{Name: bootstrapUser + id, Groups: groups}, audiences, err
}
