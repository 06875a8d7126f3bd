"""The application: settings, logging, wiring, the web app and the command line."""
