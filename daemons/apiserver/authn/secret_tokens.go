package authn

import (
	"crypto/subtle"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// invalidSinceLabel is the label with which an administrator disables a Secret's token without deleting it.
const invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"

// verifySecretToken returns the user of a token that is stored in a Secret. The Secret must still contain it; removing
// it there revokes the token.
func (t *Tokens) verifySecretToken(token string, c *claims, wanted []string) (api.User, []string, error) {
	l := c.LegacyClaims
	if l.Namespace == "" || l.Secret == "" || l.AccountName == "" || l.AccountUID == "" ||
		c.Subject != accountName(l.Namespace, l.AccountName) {
		return api.User{}, nil, errInvalidToken
	}
	audiences, err := audiencesOf(t.audiences, wanted, t.audiences)
	if err != nil {
		return api.User{}, nil, err
	}
	if err := t.checkExists("serviceaccounts", "service account", l.Namespace,
		&objectReference{Name: l.AccountName, UID: l.AccountUID}); err != nil {
		return api.User{}, nil, err
	}
	obj, ok := t.objects.Get(schema.GroupResource{Resource: "secrets"}, l.Namespace, l.Secret)
	secret, isType := obj.(*corev1.Secret)
	switch {
	case !ok || !isType || secret.DeletionTimestamp != nil:
		return api.User{}, nil, fmt.Errorf("%w: secret %s has been deleted", errInvalidToken, l.Secret)
	case subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) != 1:
		return api.User{}, nil, fmt.Errorf("%w: it is not the token of secret %s any more", errInvalidToken, l.Secret)
	case secret.Labels[invalidSinceLabel] != "":
		t.uses.invalid.Inc()
		t.uses.record(secret, t.now())
		return api.User{}, nil, fmt.Errorf("%w: the token in secret %s/%s for service account %s/%s has been marked "+
			"invalid: remove the label %s to let it be used again", errInvalidToken, l.Namespace, l.Secret, l.Namespace,
			l.AccountName, invalidSinceLabel)
	}
	if obj, ok := t.objects.Get(schema.GroupResource{Resource: "serviceaccounts"}, l.Namespace, l.AccountName); ok {
		if account, isAccount := obj.(*corev1.ServiceAccount); isAccount {
			t.uses.count(account, secret.Name)
		}
	}
	t.uses.record(secret, t.now())
	return api.User{
		Name: accountName(l.Namespace, l.AccountName), UID: l.AccountUID,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + l.Namespace},
	}, audiences, nil
}
