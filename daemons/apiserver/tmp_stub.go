package apiserver

import (
	"context"
)

func (s *Server) advertise(ctx context.Context) error { return nil }
func (s *Server) kubeletStream(q *request) error      { return pageNotFound() }
func (s *Server) proxy(q *request) error              { return pageNotFound() }
