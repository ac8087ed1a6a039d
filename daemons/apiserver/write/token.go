package write

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"

	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/request"
)

// issueToken answers serviceaccounts/token with a token of the service account.
func (s Subresources) issueToken(q *request.Request) error {
	if err := q.WriteOptions(); err != nil {
		return err
	}
	kind := authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	t := &authenticationv1.TokenRequest{}
	if err := body.Decode(q, kind, t); err != nil {
		return err
	}
	if err := setNamespace(q, t); err != nil {
		return err
	}
	if _, err := s.writes.config.Reads.WaitForVersion(q.HTTP.Context(), ""); err != nil {
		return err
	}
	if err := s.writes.admitter.AdmitSubresource(q, "CREATE", kind, t, false); err != nil {
		return err
	}
	answer, err := s.writes.config.Token(q.HTTP.Context(), q.User, q.Namespace, q.Name, t)
	if err != nil {
		return err
	}
	return q.Media.WriteObject(q.Answer, http.StatusCreated, kind, answer)
}
