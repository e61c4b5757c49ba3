// Prints, as JSON, the project that compose-go, the reference loader, makes of the compose file in the working
// directory; variables and profiles as `docker compose` takes them, from the environment and .env.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if err := load(); err != nil {
		fmt.Fprintf(os.Stderr, "compose-check: %v\n", err)
		os.Exit(1)
	}
}

func load() error {
	options, err := cli.NewProjectOptions(nil, cli.WithOsEnv, cli.WithEnvFiles(), cli.WithDotEnv,
		cli.WithDefaultConfigPath, cli.WithDefaultProfiles())
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	text, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}
