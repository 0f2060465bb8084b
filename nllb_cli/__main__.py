from nllb_cli.cli import main

main()
