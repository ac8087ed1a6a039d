package apiserver

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// issue answers serviceaccounts/token: who asks gets a token of the service account.
func (s *Server) issue(q *request) error {
	if err := q.writeOptions(); err != nil {
		return err
	}
	kind := authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	t := &authenticationv1.TokenRequest{}
	if err := s.decode(q, kind, t); err != nil {
		return err
	}
	if _, err := s.fresh(q.http.Context(), ""); err != nil {
		return err
	}
	if err := s.present(q, "CREATE", kind, t, false); err != nil {
		return err
	}
	answer, err := s.o.Token(q.http.Context(), q.user, q.Namespace, q.Name, t)
	if err != nil {
		return err
	}
	return q.media.WriteObject(q.w, http.StatusCreated, kind, answer)
}
