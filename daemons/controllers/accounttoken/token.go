package accounttoken

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/certs"
)

var everything = labels.Everything()

// fill returns a Secret with all that it should have: a CA bundle that is the newest, a token and a namespace unless somebody
// put others there. Nil: nothing is missing.
func fill(s *corev1.Secret, a *corev1.ServiceAccount, ca []byte, token func() (string, error)) (*corev1.Secret, error) {
	wantsCA := len(ca) > 0 && !bytes.Equal(s.Data[corev1.ServiceAccountRootCAKey], ca)
	wantsNamespace, wantsToken := len(s.Data[corev1.ServiceAccountNamespaceKey]) == 0, len(s.Data[corev1.ServiceAccountTokenKey]) == 0
	if !wantsCA && !wantsNamespace && !wantsToken && s.Annotations[corev1.ServiceAccountUIDKey] == string(a.UID) {
		return nil, nil
	}
	s = s.DeepCopy()
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	if wantsCA {
		s.Data[corev1.ServiceAccountRootCAKey] = ca
	}
	if wantsNamespace {
		s.Data[corev1.ServiceAccountNamespaceKey] = []byte(s.Namespace)
	}
	if wantsToken {
		text, err := token()
		if err != nil {
			return nil, err
		}
		s.Data[corev1.ServiceAccountTokenKey] = []byte(text)
	}
	s.Annotations[corev1.ServiceAccountUIDKey] = string(a.UID) // its name is there, or this would be no such Secret
	return s, nil
}

// issuer of tokens that are in Secrets, as upstream: it tells them from those that expire.
const issuer = "kubernetes/serviceaccount"

type claims struct {
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret      string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// sign makes a Secret's token with a private key in PEM.
func sign(key []byte, s *corev1.Secret, a *corev1.ServiceAccount) (string, error) {
	private, err := certs.ParseKey(key)
	if err != nil {
		return "", fmt.Errorf("read the service-account signing key: %w", err)
	}
	algorithm := jose.RS256
	switch k := private.(type) {
	case *rsa.PrivateKey:
	case *ecdsa.PrivateKey:
		switch k.Curve.Params().BitSize {
		case 256:
			algorithm = jose.ES256
		case 384:
			algorithm = jose.ES384
		default:
			algorithm = jose.ES512
		}
	default:
		return "", fmt.Errorf("keys of type %T cannot sign tokens: take an RSA or ECDSA key", private)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: private}, nil)
	if err != nil {
		return "", fmt.Errorf("set up the service-account signer: %w", err)
	}
	text, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: issuer, Subject: "system:serviceaccount:" + s.Namespace + ":" + a.Name}).
		Claims(claims{Namespace: s.Namespace, Secret: s.Name, AccountName: a.Name, AccountUID: string(a.UID)}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token for service account %s/%s: %w", s.Namespace, a.Name, err)
	}
	return text, nil
}
